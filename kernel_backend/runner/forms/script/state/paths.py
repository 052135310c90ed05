"""Identify a program's objects by paths (the variable and attributes that lead to them), and find them by these."""

from __future__ import annotations

from collections.abc import Mapping
from types import CellType, FunctionType
from typing import Any

# Path of an object: that of its holder, the kind of reference, and the name or key.
Path = tuple[Any, str, Any]
NOTHING = object()
_ITEMS = "the items of training loop "


def told(path: Path | None) -> str:
    """Return a path in Python's notation for messages: `trainer.model.layers[0]`.

    Examples
    --------
    >>> told(((("globals", "__main__"), "root", "trainer"), "attribute", "model"))
    'trainer.model'
    >>> told((("items", "root", "0"), "attribute", "items"))
    'the items of training loop 1'
    """
    if path is None:
        return "an object"
    holder, how, key = path
    if how == "root":
        return f"{_ITEMS}{int(key) + 1}" if holder == "items" else str(key)
    before = told(holder)
    if before.startswith(_ITEMS):
        return before
    if how in ("attribute", "slot"):
        return f"{before}.{key}"
    if how == "item":
        inner = before.removesuffix("._modules").removesuffix("._parameters").removesuffix("._buffers")
        return f"{inner}.{key}" if inner != before else f"{before}[{key!r}]"
    if how == "closure":
        return f"{key} of {before}"
    return before if how == "content" else f"{before}.{how}"


class Live:
    """Look-up of the running program's objects by their paths."""

    def __init__(self, roots: Mapping[Any, Any]) -> None:
        """Set up the look-up. `roots` has, by key, the namespaces in which paths begin."""
        self._roots = roots
        self._known: dict[Path, Any] = {}

    def at(self, path: Path | None) -> Any:
        """Return the object to which a path leads; the constant NOTHING if there is none."""
        if path is None:
            return NOTHING
        if path not in self._known:
            self._known[path] = self._find(path)
        return self._known[path]

    def _find(self, path: Path) -> Any:
        holder, how, key = path
        if how == "root":
            return self._roots.get(holder, {}).get(key, NOTHING)
        inside = self.at(holder)
        if inside is NOTHING:
            return NOTHING
        try:
            return _step(inside, how, key)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return NOTHING


def _step(holder: Any, how: str, key: Any) -> Any:
    if how == "attribute":
        return holder.__dict__[key]
    if how == "slot":
        return getattr(holder, key)
    if how == "item":
        # A user's class may do more than look up the item.
        kind = next((each for each in (dict, list, tuple) if isinstance(holder, each)), None)
        return holder[key] if kind is None else kind.__getitem__(holder, key)
    if how == "grad":
        return holder.grad
    if how == "closure" and isinstance(holder, FunctionType):
        return (holder.__closure__ or ())[holder.__code__.co_freevars.index(key)]
    if how == "content" and isinstance(holder, CellType):
        return holder.cell_contents
    return getattr(holder, how)
