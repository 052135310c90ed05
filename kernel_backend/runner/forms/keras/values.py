"""Read and write the values of Keras variables as torch tensors, on each backend of Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
from torch import Tensor


def on_torch() -> bool:
    """Return True if Keras runs on torch, where the value of a variable is a tensor itself."""
    return bool(keras.backend.backend() == "torch")


def read(variable: Any) -> Tensor:
    """Return the value of a Keras variable: its own tensor if Keras runs on torch, else a copy on the CPU."""
    if on_torch():
        own: Tensor = variable.value.detach()
        return own
    value = np.array(keras.ops.convert_to_numpy(variable.value))
    if value.dtype.name == "bfloat16":  # NumPy's bfloat16 is a type of ml_dtypes, which torch does not know
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def write(variable: Any, value: Tensor) -> None:
    """Overwrite the value of a variable; on torch its tensor stays the same object."""
    if on_torch():
        with torch.no_grad():
            variable.value.copy_(value)
    elif value.dtype is torch.bfloat16:
        variable.assign(value.float().numpy())  # float32 holds every bfloat16 value; Keras casts it back
    else:
        variable.assign(value.numpy())
