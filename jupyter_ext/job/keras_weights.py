"""Load trained weights into a Keras model in the notebook, with any backend of Keras."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from kernel_backend.checkpoints.base import Manifest
    from kernel_backend.definition.contract import KerasBackend


def choose_backend(backend: KerasBackend) -> None:
    """Select the job's Keras backend, unless the notebook has already imported Keras or chosen a backend."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", backend)


def set_weights(model: Any, manifest: Manifest, state: dict[str, Tensor]) -> None:
    """Build a model with the job's input shapes, and set its weights, which are in the order of `model.weights`."""
    if not model.built:
        model.build_from_config(manifest.state["training"]["form"]["build"])
    model.set_weights([state[name].numpy() for name in sorted(state)])
