"""Look up the attributes and items of objects that are saved with a program."""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import Any


def held_by(obj: Any) -> list[tuple[str, Any, Any]]:
    """Return the attributes, slots and items of an object: for each, its kind, its name or key, and its value."""
    attributes = getattr(obj, "__dict__", None)
    held = [("attribute", name, value) for name, value in (attributes or {}).items()]
    held += [("slot", name, getattr(obj, name)) for name in slots_of(type(obj)) if hasattr(obj, name)]
    # A user's class may do more than look up its items.
    if isinstance(obj, dict):
        held += [("item", key, value) for key, value in dict.items(obj)]
    elif isinstance(obj, list):
        held += [("item", index, value) for index, value in enumerate(list.__iter__(obj))]
    elif isinstance(obj, tuple):
        held += [("item", index, value) for index, value in enumerate(tuple.__iter__(obj))]
    return held


def is_importable(obj: Any) -> bool:
    """Return True if the class or function can be imported from its module by its name."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    try:
        found: Any = importlib.import_module(module) if module else None
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return found is obj


def is_plain_attribute(name: str, value: Any) -> bool:
    """Return True if an attribute of a class is plain data, not a method, property or other descriptor."""
    if name.startswith("__") or name == "_abc_impl" or hasattr(type(value), "__get__"):  # or caches of isinstance
        return False
    return not isinstance(value, classmethod | staticmethod | property | FunctionType)


def slots_of(kind: type) -> list[str]:
    """Return the names of the slots that a class and its bases define."""
    found: list[str] = []
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [each for each in found if each not in ("__dict__", "__weakref__")]
