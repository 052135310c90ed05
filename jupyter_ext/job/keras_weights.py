"""Set the trained weights of a Keras model in the notebook, whichever backend Keras has there."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from kernel_backend.checkpoints.base import Manifest


def choose_backend() -> None:
    """Have Keras run on torch, as the job did, unless the notebook has imported it or chosen a backend."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")


def set_weights(model: Any, manifest: Manifest, state: dict[str, Tensor]) -> None:
    """Build a model as it was in the job, and set its weights, which are in the order of `model.weights`."""
    if not model.built:
        model.build_from_config(manifest.state["training"]["form"]["build"])
    model.set_weights([state[name].numpy() for name in sorted(state)])
