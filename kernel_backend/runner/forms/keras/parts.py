"""Determine the model, the data and the callbacks of a Keras cell: of its call of `fit`, or of its functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from keras.src.trainers.data_adapters.array_slicing import train_validation_split  # Keras has no public names for these
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from kernel_backend.definition.keras.calls import FIT, FitCall
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext


class Parts(NamedTuple):
    """Model, data and callbacks to train with."""

    model: Any
    train_data: Any
    validation_data: Any = None
    callbacks: Sequence[Any] = ()
    shuffle: bool = True


def parts_of(rank: RankContext) -> Parts:
    """Return what the cell trains."""
    call: FitCall | None = vars(rank.loaded.module).get(FIT)
    return _of_call(call) if call is not None else _of_functions(rank)


def _of_functions(rank: RankContext) -> Parts:
    functions = rank.functions
    data = {name: functions.result(name) for name in ("train_data", "validation_data") if functions.has(name)}
    model = functions.result("model")
    return Parts(model, **data, callbacks=functions.result("callbacks") if functions.has("callbacks") else ())


def _of_call(call: FitCall) -> Parts:
    """Return the parts of a call of `fit`, with validation data split off and classes weighted as Keras does."""
    arrays, validation = (call.x, call.y, call.sample_weight), call.validation_data
    if call.validation_split and validation is None:
        arrays, validation = train_validation_split(arrays, call.validation_split)
    if call.class_weight is not None:
        if arrays[2] is not None:
            raise InvalidDefinition("fit has class_weight and sample_weight: Keras takes one of them")
        arrays = (arrays[0], arrays[1], class_weight_to_sample_weights(arrays[1], call.class_weight))
    return Parts(call.model, _given(arrays), _given(validation), call.callbacks or (), bool(call.shuffle))


def _given(data: Any) -> Any:
    """Return data without what is None, as Keras expects it: (x, y) or x."""
    if not isinstance(data, tuple):
        return data
    given = tuple(each for each in data if each is not None)
    return given if len(given) > 1 else next(iter(given), None)
