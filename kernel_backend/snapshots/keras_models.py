"""Pickle Keras models so that layers, losses and metrics of the user's own code are found where they are read."""

from __future__ import annotations

import io
import json
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any


def reduced_model(obj: Any, modules: Collection[str]) -> Any:
    """Return how to pickle a Keras model with its weights and optimizer; NotImplemented for any other object.

    `modules` are those of the user's own code. Keras refers to classes and functions by module and name in a text,
    which no unpickler can map to another module: they are pickled beside it.
    """
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(obj, keras.Model):
        return NotImplemented
    make, (content,) = obj.__reduce__()
    return read_model, (make, content.getvalue(), dict(_own(described(obj), modules)))


def read_model(make: Any, content: bytes, own: Mapping[str, Any]) -> Any:
    """Return the Keras model of a pickle, which calls this function by name."""
    import keras

    with keras.saving.custom_object_scope(dict(own)):
        return make(io.BytesIO(content))


def described(model: Any) -> str:
    """Return the configuration of a Keras model, with what it was compiled with, as JSON.

    Raises any error of a class whose `get_config` says too little.
    """
    import keras

    return json.dumps(keras.saving.serialize_keras_object(model), default=str)


def made(description: str, own: Mapping[str, Any]) -> Any:
    """Return a new Keras model of this configuration; `own` has the classes and functions of the user's code."""
    import keras

    with keras.saving.custom_object_scope(dict(_code(own))):
        return keras.saving.deserialize_keras_object(json.loads(description), safe_mode=False)


def _own(description: str, modules: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions of these modules whose names a model's configuration has."""
    for module in (sys.modules[each] for each in modules if each in sys.modules):
        for name, each in _code(vars(module)):
            if each.__module__ in modules and f'"{name}"' in description:
                yield name, each


def _code(variables: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, each) for name, each in variables.items() if isinstance(each, type | types.FunctionType)]
