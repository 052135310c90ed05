"""Find what a dataset or a `collate_fn` of the user keeps from sample to sample, which no checkpoint can hold."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from kernel_backend.installed_code import is_installed
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.determinism.reachability import attributes_of, held_by
from kernel_backend.runner.determinism.state_between_calls import (
    changed_attributes,
    changed_variables,
    is_of_user,
    variables_outside,
)

# A dict is a cache, None a file that is not open yet, a flag tells whether it is: they are made again alike.
_KEPT = (int, float, list, deque, set, np.ndarray, Tensor)


def tell_sample_state(source: Source, limit: Callable[[str], None]) -> None:
    """Limit the training's guarantee by the state of a dataset that begins anew in a restart, if there is any.

    Samples are loaded ahead, by several processes, so what a dataset counts belongs to no step.
    """
    names: dict[str, None] = {}
    with contextlib.suppress(Exception):  # objects of the user may refuse to be read
        names = dict.fromkeys(_kept(source))
    if names:
        limit(
            f"not reproducible: {', '.join(names)}: kept by {source.role}() from sample to sample: a restart and each "
            "loader process begin it anew: let a sample depend on its index alone, or on random numbers"
        )


def _kept(source: Source) -> Iterator[str]:
    for _, obj in held_by({"dataset": source.dataset, "collate": source.collate}):
        if type(obj) is FunctionType and not is_installed(obj.__code__.co_filename):
            outside = variables_outside(obj)
            yield from (name for name in changed_variables(obj) if _is_kept(outside.get(name)))
        elif is_of_user(obj) and (attributes := attributes_of(obj)) is not None:
            held = [attributes, *map(vars, type(obj).__mro__)]  # a class may have the first value
            for name in changed_attributes(type(obj)):
                if any(_is_kept(each[name]) for each in held if name in each):
                    yield f"{type(obj).__name__}.{name}"


def _is_kept(value: Any) -> bool:
    return isinstance(value, _KEPT) and not isinstance(value, bool)
