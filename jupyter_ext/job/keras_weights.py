"""Load trained weights into a Keras model in the notebook, with any backend of Keras."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from kernel_backend.checkpoints.base import Manifest


def choose_backend() -> None:
    """Let Keras use torch, as in the job, unless the notebook has imported Keras or chosen a backend."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")


def set_weights(model: Any, manifest: Manifest, state: dict[str, Tensor]) -> None:
    """Build a model as in the job, and set its weights, which are in the order of `model.weights`."""
    if not model.built:
        model.build_from_config(manifest.state["training"]["form"]["build"])
    model.set_weights([state[name].numpy() for name in sorted(state)])
