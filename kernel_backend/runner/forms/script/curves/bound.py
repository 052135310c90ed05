"""Read the numbers in variables and lists of a running program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kernel_backend.definition.reported.bound import Bound

_NOTHING = object()


def value_in(bound: Bound, names: Mapping[str, Any]) -> float | None:
    """Return the newest number in a variable or list; None if there is none.

    `names` is the namespace of the loop. Only dicts and instance attributes are read, so that no property of the user's
    code is called.
    """
    found = _at(bound, names)
    if bound.appended:
        found = found[-1] if isinstance(found, list) and found else _NOTHING
    return number_of(found)


def count_in(bound: Bound, names: Mapping[str, Any]) -> int:
    """Return the current length of a list; 0 for a variable."""
    found = _at(bound, names) if bound.appended else _NOTHING
    return len(found) if isinstance(found, list) else 0


def _at(bound: Bound, names: Mapping[str, Any]) -> Any:
    found: Any = names.get(bound.path[0], _NOTHING)
    for part in bound.path[1:]:
        inner = found if isinstance(found, dict) else getattr(found, "__dict__", {})
        found = inner.get(part, _NOTHING)
    return found


def number_of(value: Any) -> float | None:
    """Return the value as a float if it is a float, or a floating-point tensor or array without dimensions, else None.

    Attributes of other objects are not read, as they may be code of the user.
    """
    if type(value) is float:
        return value
    if isinstance(value, torch.Tensor):
        value = value.detach()  # torch warns of a conversion that gradients do not follow
        readable = value.is_floating_point() and not value.is_meta
    else:
        readable = isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"
    if not readable or value.ndim:
        return None
    try:
        return float(value)
    except RuntimeError:  # a tensor without a value of its own, as within torch.func.vmap
        return None
