"""Traverse the objects that an object refers to (attributes, items, globals of its code), without calling user code."""

from __future__ import annotations

import dis
import functools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import torch

from kernel_backend.installed_code import is_installed

MOST_OBJECTS = 10_000  # limit of visited objects: a model of 5,000 layers
MOST_ITEMS = 1_000  # limit of items in a container to visit: larger ones are data

_PLAIN = (type(None), int, float, complex, str, bytes, bytearray, range, type, ModuleType, torch.Tensor)
_LISTS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
# Wrapper types and the attributes of the wrapped object; exact types only, as a subclass may run code of its own.
_WRAPPED: dict[type, tuple[str, ...]] = {
    MethodType: ("__self__", "__func__"),
    BuiltinFunctionType: ("__self__",),
    functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget",),
}

Parts = Iterator[tuple[str, Any]]


def held_by(objects: Mapping[str, Any], tensors: bool = False, apart: Iterable[Any] = ()) -> Parts:
    """Yield the path and the object for each object reachable from `objects`, once each, nearest first.

    Included are closures of functions and, for code outside libraries, class attributes and the globals that functions
    use, since notebooks hold much state there. Tensors (unless `tensors`), modules, long containers, Daylight's own
    objects of the job (which its threads use meanwhile) and objects that are `apart` are not searched.
    """
    waiting: deque[tuple[str, Any]] = deque(objects.items())
    seen = {id(each): each for each in apart}  # keeps the objects alive, as the id of a deleted one may be reused
    most = MOST_OBJECTS + len(seen)
    while waiting and len(seen) < most:
        way, obj = waiting.popleft()
        if id(obj) in seen:
            continue
        seen[id(obj)] = obj
        yield way, obj
        for name, part in _parts(obj, seen):
            if len(waiting) == MOST_OBJECTS:
                break
            if not _is_plain(part) or (tensors and isinstance(part, torch.Tensor)):
                waiting.append((way + name, part))


def _is_plain(obj: Any) -> bool:
    kind = type(obj)
    is_ours = kind.__module__.startswith("kernel_backend.runner.")
    return is_ours or issubclass(kind, _PLAIN) or (kind in (dict, OrderedDict, *_LISTS) and not obj)


def _parts(obj: Any, seen: dict[int, Any]) -> Parts:
    """Yield the items and attributes of an object, and the attributes of its classes, each with its path.

    Classes in `seen` (by `id()`) are skipped, as they were visited before; the others are added to it.
    """
    kind = type(obj)
    yield from ((f".{name}", getattr(obj, name)) for name in _WRAPPED.get(kind, ()))
    yield from _items(obj, kind)
    yield from _attributes(obj)
    if kind is FunctionType:
        yield from _of_function(obj)
    for base in kind.__mro__:
        if "__slots__" in vars(base):
            yield from _slots(obj, base)
        if id(base) not in seen:
            seen[id(base)] = base
            yield from _of_class(base)


def _items(obj: Any, kind: type) -> Parts:
    if issubclass(kind, dict) and dict.__len__(obj) <= MOST_ITEMS:
        for number, (key, value) in enumerate(list(dict.items(obj))):
            # Other keys may differ in every process, such as the id of an object: use the index.
            yield f"[{key!r}]" if type(key) is str else f"[{number}]", value
    for base in _LISTS:
        if issubclass(kind, base) and base.__len__(obj) <= MOST_ITEMS:
            ordered = base not in (set, frozenset)
            pairs = enumerate(list(base.__iter__(obj)))
            yield from ((f"[{number}]" if ordered else "[]", each) for number, each in pairs)


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """Return the `__dict__` of an object; None if it has none, or raises an error instead."""
    held = _or_none(lambda: object.__getattribute__(obj, "__dict__"))
    return held if type(held) is dict else None


def _attributes(obj: Any) -> Parts:
    held = attributes_of(obj)
    if held is not None and len(held) <= MOST_ITEMS:
        yield from ((f".{name}", value) for name, value in list(held.items()))


def _slots(obj: Any, base: type) -> Parts:
    for name, member in vars(base).items():
        if type(member) is MemberDescriptorType:
            yield f".{name}", _or_none(functools.partial(member.__get__, obj))


def _of_function(function: FunctionType) -> Parts:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"({name})", _or_none(lambda: cell.cell_contents)  # noqa: B023 - it is called at once
    yield ".__defaults__", function.__defaults__
    yield ".__kwdefaults__", function.__kwdefaults__
    if not is_installed(function.__code__.co_filename):
        known = function.__globals__
        yield from ((f"(global {name})", known[name]) for name in _globals(function.__code__) if name in known)


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the names of globals that a function's code uses, including those in its inner functions."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _globals(each)


def _of_class(kind: type) -> Parts:
    """Yield the methods and attributes of a class, except `__init__`, which has run; nothing for library classes."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    theirs = not is_installed(file) if file else module is None or kind.__module__ == "__main__"
    if theirs:
        yield from ((f".{kind.__name__}.{name}", value) for name, value in vars(kind).items() if name != "__init__")


def _or_none(read: Callable[[], Any]) -> Any:
    """Return the result of `read`; None if it raises, as for an empty slot or closure cell."""
    try:
        return read()
    except Exception:
        return None
