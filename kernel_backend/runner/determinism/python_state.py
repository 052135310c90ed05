"""Restore plain Python state that functions hold, such as counters, lists and attributes, after they were called."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

from kernel_backend.runner.determinism.reachability import MOST_ITEMS, attributes_of, held_by

_CONTAINERS: tuple[Any, ...] = (list, dict, set, deque)


def goes_on(objects: Mapping[str, Any]) -> bool:
    """Return True if `objects` refer to an iterator, directly or indirectly.

    Its state could not be restored after a call.
    """
    return any(hasattr(type(each), "__next__") for _, each in held_by(objects))


@contextmanager
def as_it_was(objects: Mapping[str, Any]) -> Iterator[None]:
    """Restore, after the `with` block, the Python state that the objects refer to, as if the block had not run.

    This covers items of containers, attributes, globals and closures; tensors and containers of more than a thousand
    items are not restored.
    """
    restores: list[Callable[[], None]] = []
    seen: set[int] = set()
    for _, each in held_by(objects):
        _remember(each, restores, seen)
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _remember(obj: Any, restores: list[Callable[[], None]], seen: set[int]) -> None:
    if isinstance(obj, FunctionType):
        names = [name for name in obj.__code__.co_names if name in obj.__globals__]
        _remember_values({name: obj.__globals__[name] for name in names}, restores, seen)
        before = {name: obj.__globals__[name] for name in names}
        restores.append(lambda: obj.__globals__.update(before))
        for cell in obj.__closure__ or ():
            _remember_cell(cell, restores)
    for each in (obj, attributes_of(obj)):
        _remember_items(each, restores, seen)


def _remember_cell(cell: CellType, restores: list[Callable[[], None]]) -> None:
    try:
        value = cell.cell_contents
    except ValueError:  # an empty closure cell
        return
    restores.append(lambda: setattr(cell, "cell_contents", value))


def _remember_items(container: Any, restores: list[Callable[[], None]], seen: set[int]) -> None:
    if type(container) not in _CONTAINERS or id(container) in seen or len(container) > MOST_ITEMS:
        return
    seen.add(id(container))
    before = container.copy()

    def restore() -> None:
        container.clear()
        container.extend(before) if isinstance(container, list | deque) else container.update(before)

    restores.append(restore)
    _remember_values(before if isinstance(before, dict) else dict(enumerate(before)), restores, seen)


def _remember_values(values: Mapping[Any, Any], restores: list[Callable[[], None]], seen: set[int]) -> None:
    """Append to `restores`, for each value that is an empty container, a function that empties it again.

    `held_by` does not yield empty containers. `seen` has the `id()` of the containers that were handled before.
    """
    for value in values.values():
        if type(value) in _CONTAINERS and not value:
            _remember_items(value, restores, seen)
