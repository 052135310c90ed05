"""Wrap values that a user registers as checkpoint parts: modules, optimizers, generators, tensors, plain values."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer, Schedule, Stateful

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

_ARRAY, _SCALAR = "$array", "$scalar"


def joined(value: Any) -> Any:
    """Return a list, tuple or dict of modules, such as an ensemble, as one module; any other value as it is."""
    if isinstance(value, list | tuple) and value and all(isinstance(each, nn.Module) for each in value):
        return nn.ModuleList(value)
    if isinstance(value, dict) and value and all(isinstance(each, nn.Module) for each in value.values()):
        return nn.ModuleDict(value)
    return value


def part_of(name: str, value: Any) -> Stateful:
    """Return an object that saves and restores a value which the user has registered under `name`.

    Raises InvalidDefinition for a value that a checkpoint cannot hold.
    """
    if isinstance(value, nn.Module):
        return Model(value)
    if isinstance(value, torch.optim.Optimizer):
        return Optimizer(value)
    if isinstance(value, LRScheduler):
        return Schedule(value)
    if all(callable(getattr(value, each, None)) for each in ("state_dict", "load_state_dict")):
        return cast("Stateful", value)
    if isinstance(value, torch.Generator | random.Random) or _of_numpy(value):
        return _Generator(value)
    if isinstance(value, Tensor):
        return _InPlace(value)
    if isinstance(value, dict | list | deque):
        return _Container(value)
    kind = type(value).__name__
    raise InvalidDefinition(
        f"{name} is a {kind}, which a checkpoint cannot hold: give {kind} the methods state_dict() and "
        "load_state_dict(state), or register what changes in it as a dict, a list or a tensor"
    )


class _InPlace:
    """Checkpoint part for a tensor, which stays the same object: restoring overwrites its values."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def state_dict(self) -> dict[str, Any]:
        return {"value": self._tensor.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self._tensor.copy_(state["value"])


class _Container:
    """Checkpoint part for a dict, list or deque, which stays the same object: restoring replaces its items."""

    def __init__(self, items: dict[Any, Any] | list[Any] | deque[Any]) -> None:
        self._items = items

    def state_dict(self) -> dict[str, Any]:
        plain = self._items if isinstance(self._items, dict) else list(self._items)
        return {"value": _packed(plain)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        value = _unpacked(state["value"])
        self._items.clear()
        if isinstance(self._items, dict):
            self._items.update(value)
        else:
            self._items.extend(value)


class _Generator:
    """Checkpoint part for a random generator of Python, numpy or torch."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        its = self._generator
        if isinstance(its, torch.Generator):
            return {"value": its.get_state()}
        if isinstance(its, random.Random):
            return {"value": its.getstate()}
        state = its.get_state(legacy=False) if isinstance(its, np.random.RandomState) else its.bit_generator.state
        return {"value": _packed(_texts(state))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        its, value = self._generator, state["value"]
        if isinstance(its, torch.Generator):
            its.set_state(value)
        elif isinstance(its, random.Random):
            its.setstate(value)
        elif isinstance(its, np.random.RandomState):
            its.set_state(_numbers(_unpacked(value)))
        else:
            its.bit_generator.state = _numbers(_unpacked(value))


def _of_numpy(value: Any) -> bool:
    return np is not None and isinstance(value, np.random.Generator | np.random.RandomState)


def _texts(state: Any) -> Any:
    """Return a random generator's `state`, with `{"$int": text}` in place of each integer of more than 63 bits.

    A JSON reader that holds integers in 64 bits would round these; `_numbers` converts them back.
    """
    if isinstance(state, Mapping):
        return {key: _texts(value) for key, value in state.items()}
    return {"$int": str(state)} if type(state) is int and state.bit_length() > 63 else state


def _numbers(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    return int(state["$int"]) if "$int" in state else {key: _numbers(value) for key, value in state.items()}


def _packed(value: Any) -> Any:
    """Return a copy of a nested value that checkpoints can hold: tensors replace numpy values, lists replace deques."""
    if isinstance(value, dict):
        return {key: _packed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        items = [_packed(each) for each in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, deque):
        return [_packed(each) for each in value]
    if np is not None and isinstance(value, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.array(value))}
    if np is not None and isinstance(value, np.generic):
        return {_SCALAR: torch.from_numpy(np.array(value))}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return value[_ARRAY].numpy()
        if value.keys() == {_SCALAR}:
            return value[_SCALAR].numpy()[()]
        return {key: _unpacked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        items = [_unpacked(each) for each in value]
        return items if isinstance(value, list) else tuple(items)
    return value
