"""Write the README of a downloaded checkpoint, which describes how to load its weights without Daylight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_backend.definition.contract import Definition
from kernel_backend.definition.parse import parse_snapshot
from kernel_backend.definition.script.parts import PART, STATE
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.text import metrics_text

if TYPE_CHECKING:
    from kernel_backend.checkpoints.base import Manifest

_TEXT = """\
{title}
Every byte was compared with its digest when it was downloaded. In this folder, with torch and safetensors:

    import sys; sys.path.insert(0, "code"); import definition, torch
    from safetensors.torch import load_file
    {load}
{more}
code/             what was submitted: definition.py, the project's files, and snapshot.json about where it came from
requirements.txt  what was installed, for pip
experiment.json   options and hyperparameters
manifest.json     the parts with their sizes and xxh3-128 digests, and on what the bits depend
"""

# A tensor that several modules share is stored under one name, which is in the manifest.
_OF_PROGRAM = """\
import json; modules = json.load(open("manifest.json"))["state"]["{part}"]; tensors = {tensors}
    names = {{name: module["{state}"] for name, module in modules.items()}}
    state = {{name: {{key: tensors[each["$tensor"]] for key, each in own.items()}} for name, own in names.items()}}
    # the state_dict of each of the program's modules, by name of its variable"""


def readme(experiment: Experiment, manifest: Manifest, source: str, snapshot: Snapshot) -> str:
    """Return the text of README.txt for a downloaded checkpoint."""
    what = f"Checkpoint {manifest.id} of {experiment.number}.{manifest.trial} {experiment.name}".rstrip()
    facts = [f"step {manifest.step}", f"epoch {manifest.epoch:.2f}", metrics_text(manifest.metrics)]
    averaged = "ema" in manifest.state
    return _TEXT.format(
        title=f"{what}: {', '.join(fact for fact in facts if fact)}.",
        load=_loading(manifest, source, snapshot, "ema" if averaged else "model"),
        more=f"    # these are averaged; the plain ones: {_state(manifest, 'model')}\n" if averaged else "",
    )


def _loading(manifest: Manifest, source: str, snapshot: Snapshot, weights: str) -> str:
    """Return the line of Python with which a reader of the README loads the weights into the model."""
    if PART in manifest.state:
        return _OF_PROGRAM.format(part=PART, tensors=_state(manifest, PART), state=STATE)
    state = _state(manifest, weights)
    try:
        definition = parse_snapshot(source, snapshot)
    except InvalidDefinition:  # written for another version of Daylight
        made = "definition.model(...)"
    else:
        if definition.form == "lightning":
            return f"state = {state}  # for the LightningModule; importing definition.py trains"
        if definition.form == "trainer":
            return f"state = {state}  # for the model that the Trainer is given; importing definition.py trains"
        if definition.calls_fit:
            return f"state = {state}  # for the compiled model; importing definition.py trains"
        if definition.form == "keras":
            made = _made(manifest, definition)
            return f"state = {state}; model = {made}; model.set_weights([state[each] for each in sorted(state)])"
        if "model" not in definition.functions:  # train(run, ...) creates it
            return f"state = {state}  # for the model that train() makes"
        made = _made(manifest, definition)
    return f"model = {made}; model.load_state_dict({state})"


def _state(manifest: Manifest, weights: str) -> str:
    """Return the Python expression that reads a model's weights, including frozen ones, from a checkpoint's files."""
    names = [part.name for part in manifest.parts if part.name in (weights, f"{weights}.frozen")]
    read = [f'load_file("{name}.safetensors")' for name in names]
    return " | ".join(read)


def _made(manifest: Manifest, definition: Definition) -> str:
    """Return the Python expression that creates the model; `...` replaces arguments of unknown value."""
    model = definition.functions["model"]
    given = [f"{name}={value!r}" for name, value in model.hyperparameters(manifest.params).items()]
    others = [f"{each.name}=..." for each in model.parameters if each.kind != "hyperparameter"]
    called = "" if model.value else f"({', '.join([*given, *others])})"
    made = f"definition.{model.attribute}{called}"
    return f"torch.nn.ModuleDict({made})" if definition.models else made
