"""Write what an exported model is: a card for people and model hubs, its lineage as JSON, and an MLmodel file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.text import metrics_text

if TYPE_CHECKING:
    from kernel_backend.checkpoints.base import Manifest

_CARD = """\
---
{metadata}
---

# {title}

{origin}

| | |
|---|---|
{facts}

## Load it

With Python {python} and `pip install -r requirements.lock`:

```python
{load}
```

`python check.py` compares it with the outputs that it had where it was exported: **{proof}**.

## What is here

| file | content |
|---|---|
{files}
"""
_CONTENT = {
    "model.safetensors": "the weights",
    "config.json": "the hyperparameters",
    "structure.json": "of which classes the model is put together, and how",
    "structure.safetensors": "tensors that are no weights",
    "definition.py": "the code that the model needs",
    "values.safetensors": "tensors that this code reads",
    "code": "the project's modules that it imports",
    "model.py": "loads the model, without a pickle",
    "check.py": "proves that it computes what it did",
    "expected.safetensors": "synthetic inputs, and the outputs for them",
    "requirements.lock": "packages, as they were installed where it was trained",
    "daylight.json": "where it comes from: experiment, step, digests of code, environment and weights",
    "MLmodel": "MLflow's description: `mlflow models serve -m .`",
    "model.keras": "the model, in the format of Keras",
    "adapter": "the LoRA adapter alone",
    "model.pt2": "the program of `torch.export`, for `torch.export.load`",
    "model.onnx": "for ONNX Runtime and others",
}


class Origin(NamedTuple):
    """Experiment, checkpoint and snapshot from which a model is exported."""

    experiment: Experiment
    manifest: Manifest
    snapshot: Snapshot
    module: str  # the exported module's name in the checkpoint


def lineage(origin: Origin, proof: str) -> dict[str, Any]:
    """Return where a model comes from, as JSON."""
    experiment, manifest = origin.experiment, origin.manifest
    return {
        "experiment": experiment.number,
        "name": experiment.name,
        "trial": manifest.trial,
        "trial_id": manifest.uid,
        "checkpoint": manifest.id,
        "module": origin.module,
        "step": manifest.step,
        "epoch": manifest.epoch,
        "saved_at": manifest.at,
        "seed": manifest.seed,
        "slots": manifest.world,
        "hyperparameters": manifest.params,
        "metrics": manifest.metrics,
        "snapshot": experiment.snapshot,
        "environment": origin.snapshot.environment.id,
        "git_commit": origin.snapshot.environment.git_commit,
        "data": {each.name: each.model_dump() for each in origin.snapshot.captured if each.digest},
        "numerics": manifest.numerics,
        "parts": {each.name: each.digest for each in manifest.parts},
        "proof": proof,
    }


def card(origin: Origin, proof: str, library: str, present: Sequence[str], load: str) -> str:
    """Return the text of README.md; it begins with the metadata that model hubs read. `present` are the files."""
    experiment, manifest = origin.experiment, origin.manifest
    environment = origin.snapshot.environment
    name = experiment.name or f"experiment {experiment.number}"
    facts = {
        "experiment": f"{experiment.number}.{manifest.trial}, step {manifest.step}, epoch {manifest.epoch:g}",
        "metrics": metrics_text(manifest.metrics) or "none was validated at this step",
        "hyperparameters": ", ".join(f"{key}={value!r}" for key, value in manifest.params.items()) or "none",
        "seed, slots": f"{manifest.seed}, {manifest.world}",
        "trained on": f"{manifest.numerics.get('device', '?')}, torch {manifest.numerics.get('torch', '?')}",
        "code": f"snapshot {experiment.snapshot[:16]}"
        + (f", git {environment.git_commit[:12]}" if environment.git_commit else ""),
    }
    when = time.strftime("%Y-%m-%d", time.gmtime(manifest.at))
    rows = [f"| `{each}` | {_CONTENT[each]} |" for each in _CONTENT if each in present]
    return _CARD.format(
        metadata="\n".join([f"library_name: {library}", "tags:", "- daylight"]),
        title=name,
        origin=f"Trained by Daylight and saved on {when}.",
        facts="\n".join(f"| {key} | {value} |" for key, value in facts.items()),
        python=environment.python.rpartition(".")[0],
        load=load,
        proof=proof,
        files="\n".join(rows),
    )


def requirements(names: Sequence[str], snapshot: Snapshot, installed: Mapping[str, str]) -> str:
    """Return the lines for pip: the packages `names` in the versions of the training, or else those `installed`."""
    trained = {_normal(name): version for name, version in snapshot.environment.distributions.items()}
    here = {_normal(name): version for name, version in installed.items()}
    lines = []
    for name in sorted({_normal(each) for each in names}):
        version = trained.get(name) or here.get(name)
        if version is not None:
            lines.append(f"{name}=={version.partition('+')[0]}")  # an index has no build such as +cpu by this name
    return "\n".join([f"# Python {snapshot.environment.python}", *lines]) + "\n"


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def mlmodel(origin: Origin) -> str:
    """Return the text of MLflow's file `MLmodel`, in YAML: the model is loaded by `mlflow_model.py`."""
    environment = origin.snapshot.environment
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(origin.manifest.at))
    return "\n".join(
        [
            "flavors:",
            "  python_function:",
            "    env: {virtualenv: python_env.yaml}",
            "    loader_module: mlflow.pyfunc.model",
            "    model_code_path: mlflow_model.py",
            "    python_model: null",
            f"    python_version: {environment.python}",
            f"utc_time_created: {json.dumps(made)}",
            f"metadata: {json.dumps({'daylight': f'{origin.experiment.number}.{origin.manifest.trial}'})}",
            "",
        ]
    )
