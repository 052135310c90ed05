"""Record the call of Keras' `fit` while a cell is imported, instead of training; see `source.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

FIT = "_daylight_fit"  # the variable of the module that holds the FitCall


class FitCall(NamedTuple):
    """Arguments of `fit` that say what is trained on what; its length and batch size are known from the source."""

    model: Any
    x: Any
    y: Any
    callbacks: Any
    validation_split: float
    validation_data: Any
    shuffle: bool
    class_weight: Mapping[int, float] | None
    sample_weight: Any


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
    *_: Any,
    **__: Any,
) -> FitCall:
    """Return a record of the arguments of Keras' `fit`, in its order."""
    return FitCall(model, x, y, callbacks, validation_split, validation_data, shuffle, class_weight, sample_weight)
