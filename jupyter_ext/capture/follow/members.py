"""Look up members of loaded packages, without running code of the packages."""

from __future__ import annotations

import inspect
import sys
import types

_UNKNOWN = object()
_LONGEST = 3  # names in the path of a member that is not found in a loaded package
_PLAIN = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def lacks(package: str, path: str, name: str) -> bool:
    """Return True if a member of a package surely has no attribute `name`, so that reading it would fail.

    It is True only for members of modules, classes and functions that are loaded and do not compute their attributes.
    """
    holder = _member(package, path)
    return holder is not _UNKNOWN and _attribute(holder, name) is None


def extended(path: str, name: str) -> str:
    """Return the dotted path of the attribute `name` of the package member at `path`, shortened if it is long.

    Packages that are not loaded seem to have every attribute, so paths could grow without end. In a path that is too
    long, names between the first and the last are left out, except `random`. What a call does to random states and
    settings depends on the first name, the last one and `random`; at worst, a shortened path suggests more draws and
    changes than the call makes.
    """
    names = [*filter(None, path.split(".")), name]
    if len(names) > _LONGEST:
        names = [names[0], *(["random"] if "random" in names[1:-1] else []), name]
    return ".".join(names)


def _member(package: str, path: str) -> object:
    found: object = sys.modules.get(package, _UNKNOWN)
    for name in filter(None, path.split(".")):
        if found is _UNKNOWN:
            break
        inner = _attribute(found, name)
        found = _UNKNOWN if inner is None else inner[0]
    return found


def _attribute(holder: object, name: str) -> tuple[object] | None:
    """Return the attribute `name` of `holder` as a tuple of one value; None if `holder` surely has no such attribute.

    The value is `_UNKNOWN` if the attribute cannot be read without running code of the package.
    """
    if type(holder) is types.ModuleType:
        own = vars(holder)
        if name in own:
            return (own[name],)
        if hasattr(types.ModuleType, name):  # such as `__dict__`
            return (_UNKNOWN,)
        dotted = f"{holder.__name__}.{name}"
        return (sys.modules.get(dotted, _UNKNOWN),) if dotted in sys.modules or "__getattr__" in own else None
    if type(holder) is type or type(holder) in _PLAIN:
        found = inspect.getattr_static(holder, name, _UNKNOWN)
        return None if found is _UNKNOWN else (found,)
    return (_UNKNOWN,)
