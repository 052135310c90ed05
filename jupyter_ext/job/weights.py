"""Load a trained model from a checkpoint: run its training definition in this process, and download the weights."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from jupyter_ext.job.keras_weights import choose_backend, described_model, set_weights
from jupyter_ext.job.own_classes import submitted_code, with_own_classes
from jupyter_ext.job.script_modules import chosen, made, nested
from kernel_backend.client import Client
from kernel_backend.commands.download import fetch_part
from kernel_backend.definition.contract import Function
from kernel_backend.definition.lightning.calls import FIT, FitCall, made_again
from kernel_backend.definition.parse import parse
from kernel_backend.definition.script.parts import PART
from kernel_backend.definition.trainer.source import MODEL
from kernel_backend.errors import CheckpointDamaged, InvalidDefinition, InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.text.terminal import tell

if TYPE_CHECKING:
    import torch

    from kernel_backend.artifacts.run import Run
    from kernel_backend.checkpoints.base import Manifest

Weights = Literal["auto", "model", "ema"] | str  # or a part's name that a user's loop registered


# One module, or several by name or in a list; for a training loop without a function `model`, the state_dict of a part.
Models: TypeAlias = "torch.nn.Module | torch.Tensor | dict[str, Any] | list[Any]"

_OF_MODEL = ("auto", "model", "ema")
_BESIDE = ("beside", "variables")  # what was trained beside the model: torch tensors, Keras variables


def load(client: Client, number: int, choices: Sequence[CheckpointInfo], weights: Weights) -> Models:
    """Return the model that the training definition creates, in evaluation mode, with the weights of a checkpoint.

    The weights are those of the first intact checkpoint in `choices`; damaged ones are reported on standard error. If
    `model()` returns several models, they are returned by name. For `train(run, ...)` without a function `model`, the
    state of a registered object is returned: `model`, or the one named by `weights`; so are the tensors `beside` any
    model. Raises CheckpointDamaged if all
    checkpoints in `choices` are damaged.
    """
    import torch

    found = _of_program(client, number, choices, weights)
    if found is not None:  # not its truth, for which a module may be asked for its length
        return found
    source, snapshot = client.source(number)
    definition = parse(source, snapshot.roles_from, snapshot.contract)
    if definition.form in ("functions", "keras") and weights not in (*_OF_MODEL, *_BESIDE):
        raise InvalidRequest(f"weights={weights!r}: must be auto, model or ema, or {' or '.join(_BESIDE)}")
    if definition.form == "loop" and weights == "auto":
        weights = "model"  # a part that is called `ema` is one among others
    for place, info in enumerate(choices, 1):
        try:
            manifest = _manifest(client, number, info)
            state = _state(client, number, manifest, weights)
        except CheckpointDamaged as damage:
            if place == len(choices):
                raise
            tell(f"{damage.message}: step {choices[place].step} is taken", file=sys.stderr)
        else:
            role = {"lightning": "module", "trainer": "trainer"}.get(definition.form, "model")
            if role not in definition.functions or weights not in _OF_MODEL:
                return state
            if definition.form == "keras":
                choose_backend(definition.keras_backend)
            if definition.calls_fit:
                model: Models = described_model(manifest, submitted_code(client, number))
            else:
                model = _model(client, number, manifest.params, definition.functions[role])
            if definition.form == "keras":
                set_weights(model, manifest, state)
                return model
            module: Any = torch.nn.ModuleDict(model) if isinstance(model, dict) else model
            module.load_state_dict(state)
            module.eval()
            return model
    raise AssertionError("there is no choice")


def _of_program(client: Client, number: int, choices: Sequence[CheckpointInfo], weights: Weights) -> Models | None:
    """Return what a program with a training loop of its own has trained; None for other definitions.

    `choices` are checkpoints in order of preference; a damaged one is skipped. `weights` is the variable of the wanted
    module, tensor, or container of these, or `auto` for the only one.
    """
    for place, info in enumerate(choices, 1):
        try:
            manifest = _manifest(client, number, info)
            if PART not in manifest.state:
                return None
            name, states = chosen(_state(client, number, manifest, PART), weights)
        except CheckpointDamaged as damage:
            if place == len(choices):
                raise
            tell(f"{damage.message}: step {choices[place].step} is taken", file=sys.stderr)
        else:
            definitions = submitted_code(client, number)
            return cast(
                "Models", nested(name, {each: made(each, state, definitions) for each, state in states.items()})
            )
    return None


def _manifest(client: Client, number: int, info: CheckpointInfo) -> Manifest:
    from kernel_backend.checkpoints.base import parse as parse_manifest

    return parse_manifest(client.manifest(number, info.trial, info.id))


def _state(client: Client, number: int, manifest: Manifest, weights: Weights) -> dict[str, Any]:
    """Return the `state_dict` of the averaged (EMA) or the plain weights, downloaded from a checkpoint."""
    from kernel_backend.checkpoints.writer import tensors_of, unflatten

    name = weights if weights != "auto" else "ema" if "ema" in manifest.state else "model"
    if name not in manifest.state:
        if name == "ema":
            raise InvalidRequest(f"checkpoint {manifest.id} has no averaged weights: it was trained without --ema")
        if name in _BESIDE:
            raise InvalidRequest(f"checkpoint {manifest.id} has no part {name}: its model was trained alone")
        known = [each for each in manifest.state if each != "training" and not each.startswith("random-")]
        write = ", ".join(f'job.load("{each}")' for each in known)
        raise InvalidRequest(
            f"checkpoint {manifest.id} has no part {name}, which train(run) registers by run.restore() or run.finish()"
            + (f": write {write}" if known else ", and no other")
        )

    def read(name: str) -> bytes:
        part, buffer = manifest.part(name), io.BytesIO()
        assert part is not None  # only existing parts are read
        fetch_part(client, number, manifest, part, buffer)
        return buffer.getvalue()

    return cast("dict[str, Any]", unflatten(manifest.state[name], tensors_of(manifest, name, read)))


def _model(client: Client, number: int, params: dict[str, Value], function: Function) -> Models:
    asked = {each.name for each in function.parameters if each.kind != "hyperparameter"}
    others = sorted(asked - {"run"})
    if others:
        raise InvalidDefinition(
            f"model takes {', '.join(others)}, which only a job has: make it with "
            f"%dl source {number}, and load the weights into it"
        )
    given: dict[str, Any] = {"run": _silent()} if "run" in asked else {}
    module = submitted_code(client, number)
    call: FitCall | None = vars(module).get(FIT)
    values = function.hyperparameters(params)
    if call is not None:
        model = made_again(call.model, values)
    elif MODEL in vars(module):  # a Trainer's model
        model = copy.deepcopy(vars(module)[MODEL])
    elif function.value:
        model = copy.deepcopy(getattr(module, function.attribute))  # a copy, since later calls use the module, too
    else:
        model = getattr(module, function.attribute)(**values, **given)
    for each in model.values() if isinstance(model, dict) else [model]:
        with_own_classes(each, module, vars(sys.modules["__main__"]))
    return cast("Models", model)


def _silent() -> Run:
    """Return the object passed to a function `model(run)`: it discards artifacts, as the training has saved them."""
    from kernel_backend.artifacts.run import Run

    run = Run()
    run.begin(None)
    return run
