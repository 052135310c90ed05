"""Load a trained model from a checkpoint: run its training definition in this process, and download the weights."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from kernel_backend.client import Client
from kernel_backend.definition.contract import Function
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.definition.lightning.calls import FIT, FitCall, made_again
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.definition.script.parts import PART, SKELETON, STATE
from kernel_backend.definition.trainer.source import MODEL
from kernel_backend.errors import CheckpointDamaged, InvalidDefinition, InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.text.terminal import tell
from kernel_backend.trained.fetch import OfService, TrainedFiles, fetch_part
from kernel_backend.trained.keras_weights import choose_backend, described_model, set_weights
from kernel_backend.trained.own_classes import with_own_classes
from kernel_backend.trained.script_modules import chosen, made, nested

if TYPE_CHECKING:
    import torch

    from kernel_backend.artifacts.run import Run
    from kernel_backend.checkpoints.base import Manifest

Weights = Literal["auto", "model", "ema"] | str  # or a part's name that a user's loop registered


# One module, or several by name or in a list; for a training loop without a function `model`, the state_dict of a part.
Models: TypeAlias = "torch.nn.Module | torch.Tensor | dict[str, Any] | list[Any]"

_OF_MODEL = ("auto", "model", "ema")
_STRUCTURES = "structures"  # part of the checkpoints of training loops
_ABOUT = ("training", _STRUCTURES)
_BESIDE = ("beside", "variables")  # what was trained beside the model: torch tensors, Keras variables


class Loaded(NamedTuple):
    """Models loaded from a checkpoint, with its manifest and the code that made them."""

    models: Models
    manifest: Manifest
    definitions: ModuleType | None = None  # the training definition, without its training; None: no code was run
    name: str = "model"  # the checkpoint's part, or the variable of a program


def load(client: Client, number: int, choices: Sequence[CheckpointInfo], weights: Weights) -> Loaded:
    """Return the model that the training definition creates, in evaluation mode, with the weights of a checkpoint.

    The weights are those of the first intact checkpoint in `choices`; damaged ones are reported on standard error. If
    `model()` returns several models, they are returned by name. For `train(run, ...)` without a function `model`, the
    state of a registered object is returned: `model`, or the one named by `weights`; so are the tensors `beside` any
    model. For a program with a training loop of its own, `weights` is the variable of the wanted module, tensor, or
    container of these, or `auto` for the only one. Raises CheckpointDamaged if all checkpoints in `choices` are
    damaged.
    """
    files = OfService(client, number)
    for place, info in enumerate(choices, 1):
        try:
            return load_checkpoint(files, _manifest(client, number, info), weights)
        except CheckpointDamaged as damage:
            if place == len(choices):
                raise
            tell(f"{damage.message}: step {choices[place].step} is taken", file=sys.stderr)
    raise AssertionError("there is no choice")


def with_module(files: TrainedFiles, loaded: Loaded) -> Loaded:
    """Return a module in place of its state, if a training loop has made it itself; else what was loaded.

    Its structure is in the checkpoint. If it cannot be made here, the reason is printed.
    """
    structures = loaded.manifest.state.get(_STRUCTURES, {})
    if not isinstance(loaded.models, dict) or loaded.name not in structures:
        return loaded
    found = _state(files, loaded.manifest, _STRUCTURES)[loaded.name]
    state = {STATE: loaded.models} | ({} if found is None else {SKELETON: found})
    definitions = files.code()
    return loaded._replace(models=made(loaded.name, state, definitions), definitions=definitions)


def load_checkpoint(files: TrainedFiles, manifest: Manifest, weights: Weights = "auto") -> Loaded:
    """Return the model of one checkpoint, as `load` does; raise CheckpointDamaged if its bytes have changed."""
    import torch

    if PART in manifest.state:
        name, states = chosen(_state(files, manifest, PART), weights)
        module = files.code()
        found = nested(name, {each: made(each, state, module) for each, state in states.items()})
        return Loaded(found, manifest, module, name)
    definition = parse_snapshot(*files.source())
    if definition.form in ("prediction", "evaluation"):
        raise InvalidRequest(f"#{files.number} has no model of its own: load that of the training that it names")
    if definition.form in ("functions", "keras") and weights not in (*_OF_MODEL, *_BESIDE):
        raise InvalidRequest(f"weights={weights!r}: must be auto, model or ema, or {' or '.join(_BESIDE)}")
    if definition.form == "loop" and weights == "auto":
        weights = "model"  # a part that is called `ema` is one among others
    state = _state(files, manifest, weights)
    role = form_named(definition.form).model_role
    if role not in definition.functions or weights not in _OF_MODEL:
        return Loaded(state, manifest, name=weights)
    if definition.keras_backend is not None:
        choose_backend(definition.keras_backend)
    module = files.code()
    if definition.calls_fit:
        model: Models = described_model(manifest, module)
    else:
        model = _model(files.number, manifest.params, definition.functions[role], module)
    if definition.keras_backend is not None:
        set_weights(model, manifest, state)
    else:
        whole: Any = torch.nn.ModuleDict(model) if isinstance(model, dict) else model
        whole.load_state_dict(state)
        whole.eval()
    return Loaded(model, manifest, module)


def _manifest(client: Client, number: int, info: CheckpointInfo) -> Manifest:
    from kernel_backend.checkpoints.base import parse as parse_manifest

    return parse_manifest(client.manifest(number, info.trial, info.id))


def _state(files: TrainedFiles, manifest: Manifest, weights: Weights) -> dict[str, Any]:
    """Return the `state_dict` of the averaged (EMA) or the plain weights, read from a checkpoint."""
    from kernel_backend.checkpoints.writer import tensors_of, unflatten

    name = weights if weights != "auto" else "ema" if "ema" in manifest.state else "model"
    if name not in manifest.state:
        if name == "ema":
            raise InvalidRequest(f"checkpoint {manifest.id} has no averaged weights: it was trained without --ema")
        if name in _BESIDE:
            raise InvalidRequest(f"checkpoint {manifest.id} has no part {name}: its model was trained alone")
        known = [each for each in manifest.state if each not in _ABOUT and not each.startswith("random-")]
        write = ", ".join(f'job.load("{each}")' for each in known)
        raise InvalidRequest(
            f"checkpoint {manifest.id} has no part {name}, which train(run) registers by run.restore() or run.finish()"
            + (f": write {write}" if known else ", and no other")
        )

    def read(name: str) -> bytes:
        part, buffer = manifest.part(name), io.BytesIO()
        assert part is not None  # only existing parts are read
        fetch_part(files, manifest, part, buffer)
        return buffer.getvalue()

    return cast("dict[str, Any]", unflatten(manifest.state[name], tensors_of(manifest, name, read)))


def _model(number: int, params: dict[str, Value], function: Function, module: ModuleType) -> Models:
    asked = {each.name for each in function.parameters if each.kind != "hyperparameter"}
    others = sorted(asked - {"run"})
    if others:
        raise InvalidDefinition(
            f"model takes {', '.join(others)}, which only a job has: make it with "
            f"%dl source {number}, and load the weights into it"
        )
    given: dict[str, Any] = {"run": _silent()} if "run" in asked else {}
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
