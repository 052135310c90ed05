"""Flatten the nested arguments and results of a call, and rebuild them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor


def leaves(value: Any) -> Iterator[Any]:
    """Yield, in order, the values that are left when nested tuples, lists, mappings and dataclasses are unpacked."""
    children = _children(value)
    if children is None:
        yield value
    else:
        for each in children:
            yield from leaves(each)


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a nested value."""
    return [each for each in leaves(value) if isinstance(each, Tensor)]


def with_tensors(value: Any, new: Sequence[Tensor]) -> Any:
    """Return a copy of a nested value with its tensors replaced by `new`, in the same order."""
    remaining = iter(new)
    return mapped(value, lambda each: next(remaining) if isinstance(each, Tensor) else each)


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a copy of a nested value in which each value that is no container is replaced by `function` of it."""
    if _children(value) is None:
        return function(value)
    if isinstance(value, Mapping):
        made = {name: mapped(each, function) for name, each in value.items()}
        if type(value) is dict:
            return made
        found: Any = copy.copy(value)
        for name, each in made.items():
            found[name] = each
        return found
    if isinstance(value, tuple | list):
        values = [mapped(each, function) for each in value]
        if hasattr(value, "_fields"):
            return type(value)(*values)
        return values if type(value) is list else type(value)(values)
    found = copy.copy(value)
    for field in dataclasses.fields(value):
        object.__setattr__(found, field.name, mapped(getattr(value, field.name), function))
    return found


def pattern(value: Any) -> Any:
    """Return a hashable description of a nested value: structure and types, without sizes of tensors and numbers."""
    if isinstance(value, Tensor):
        return "tensor", value.dim(), value.dtype, value.device.type, value.requires_grad
    if value is None or isinstance(value, bool | str):
        return value
    children = _children(value)
    if children is None:
        return type(value)
    names = tuple(value) if isinstance(value, Mapping) else ()
    return type(value), names, tuple(pattern(each) for each in children)


def _children(value: Any) -> list[Any] | None:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, tuple | list):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None
