"""Record the call of Keras' `fit` while a cell is imported, instead of training; see `source.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FIT = "_daylight_fit"  # the variable of the module that holds the FitCall


class FitCall(NamedTuple):
    """Model, data and callbacks of a call of `fit`, with the validation data split off as Keras does."""

    model: Any
    train_data: Any
    validation_data: Any = None
    callbacks: Sequence[Any] = ()
    shuffle: bool = True


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
    """Return a record of the arguments of `fit`; the job has set its length and batch size from the cell's source."""
    from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

    arrays = (x, y, sample_weight)
    if validation_split and validation_data is None:
        arrays, validation_data = array_slicing.train_validation_split(arrays, validation_split)
    if class_weight is not None:
        if arrays[2] is not None:
            raise ValueError("You cannot `class_weight` and `sample_weight` at the same time.")
        weights = data_adapter_utils.class_weight_to_sample_weights(arrays[1], class_weight)
        arrays = (arrays[0], arrays[1], weights)
    return FitCall(model, _without_none(arrays), _without_none(validation_data), callbacks or (), bool(shuffle))


def _without_none(data: Any) -> Any:
    """Return data as Keras expects it, (x, y) or (x,), for arrays with None for what was not given."""
    if not isinstance(data, tuple):
        return data
    given = tuple(each for each in data if each is not None)
    return given if len(given) > 1 else next(iter(given), None)
