"""Load trained weights into a Keras model in the notebook, with any backend of Keras."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernel_backend.errors import InvalidRequest
from kernel_backend.trained.own_classes import equivalent

if TYPE_CHECKING:
    from torch import Tensor

    from kernel_backend.checkpoints.base import Manifest
    from kernel_backend.definition.contract import KerasBackend


def choose_backend(backend: KerasBackend) -> None:
    """Select the job's Keras backend, unless the notebook has already imported Keras or chosen a backend."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", backend)


def described_model(manifest: Manifest, module: ModuleType) -> Any:
    """Return a new model as the checkpoint describes it; `module` has the classes and functions of the cell.

    They are the notebook's own where these are equivalent.

    Raises InvalidRequest if the model has a class whose `get_config` does not describe it.
    """
    from kernel_backend.snapshots.keras_models import made

    description = manifest.state["training"]["form"].get("model")
    if description is None:
        raise InvalidRequest(
            "the model has a class without a get_config that describes it, so that Keras cannot make it anew: write "
            "get_config, or a function model() that returns the compiled model"
        )
    submitted, notebook = vars(module), vars(sys.modules["__main__"])
    same = (name for name in submitted.keys() & notebook.keys() if name[:1] != "_")
    own = {name: notebook[name] for name in same if equivalent(submitted[name], notebook[name], submitted, notebook)}
    return made(description, submitted | own)


def set_weights(model: Any, manifest: Manifest, state: dict[str, Tensor]) -> None:
    """Build a model with the job's input shapes, and set its weights, which are in the order of `model.weights`."""
    if not model.built:
        model.build_from_config(manifest.state["training"]["form"]["build"])
    model.set_weights([state[name].numpy() for name in sorted(state)])
