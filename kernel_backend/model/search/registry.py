"""Register search methods: built-in ones, and those that other packages add by entry points.

An entry point in the group `daylight.search_methods` has the method's name and refers to a `SearchMethod`. Names are
read from package metadata; a package is imported only when its method is used, so that a broken package affects no
other search. A built-in method cannot be replaced, and if two packages use the same name, neither is used.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.packages.entry_points import EntryPoints, described, package_of
from kernel_backend.model.search.methods import BUILT_IN, CHECKPOINTS, SearchMethod
from kernel_backend.model.values import nearest

GROUP = "daylight.search_methods"
_BUILT_IN: Mapping[str, SearchMethod] = {method.name: method for method in BUILT_IN}
_KNOWN: Mapping[str, SearchMethod] = {**_BUILT_IN, CHECKPOINTS.name: CHECKPOINTS}  # also what users are not offered

_lock = threading.RLock()
_loaded: dict[str, SearchMethod] = {}
_entries = EntryPoints(GROUP)


def names() -> tuple[str, ...]:
    """Return the names of all search methods, built-in ones first, without importing packages."""
    return (*_BUILT_IN, *sorted(name for name in _entries.by_name() if name not in _BUILT_IN))


def find(name: str) -> SearchMethod | None:
    """Return the search method with this name; None if there is none, or if its package is broken."""
    try:
        return method_of(name, refresh=False)
    except InvalidRequest:
        return None


def method_of(name: str, *, refresh: bool = True) -> SearchMethod:
    """Return the search method with this name.

    For an unknown name, `refresh` rescans the installed packages. Raises InvalidRequest, which names a broken package
    or lists the available methods.
    """
    with _lock:
        if (found := _KNOWN.get(name) or _loaded.get(name)) is not None:
            return found
        entries = _entries.by_name().get(name) or (_entries.by_name(refresh=True).get(name) if refresh else None)
        if not entries:
            *others, last = names()
            raise InvalidRequest(
                f"--search {name[:64]}: must be {', '.join(others)} or {last}{nearest(name, (*others, last))}; "
                "a method of another package needs that package where the service runs"
            )
        _loaded[name] = found = _load(entries)
        return found


def shadowing() -> list[str]:
    """Return a warning for each method of a package that is ignored because a built-in method has its name."""
    return [
        f"the search method {name} of package {package_of(entry)} is not used: a built-in method has this name"
        for name, entries in sorted(_entries.by_name(refresh=True).items())
        if name in _BUILT_IN
        for entry in entries
    ]


def problems() -> list[str]:
    """Import the methods of all packages; return an error text for each unusable one, including duplicate names."""
    said = shadowing()
    for name in names()[len(_BUILT_IN) :]:
        try:
            method_of(name, refresh=False)
        except InvalidRequest as error:
            said.append(error.message)
    return said


def methods() -> tuple[SearchMethod, ...]:
    """Return all usable search methods, built-in ones first."""
    return tuple(method for name in names() if (method := find(name)) is not None)


def function_of(method: SearchMethod, path: str) -> Callable[..., Any]:
    """Import and return the function at `path` (`module:function`) of a method; raises InvalidRequest if that fails."""
    module, _, name = path.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        if not method.package:
            raise
        raise _broken(method.name, method.package, f"{path} cannot be imported: {described(error)}") from error
    return found


def _load(entries: list[EntryPoint]) -> SearchMethod:
    first, *others = entries
    name, package = first.name, package_of(first)
    if others:
        several = " and ".join(package_of(entry) for entry in entries)
        raise InvalidRequest(f"--search {name}: {several} both have a method of this name: uninstall all but one")
    try:
        found = first.load()
    except (Exception, SystemExit) as error:
        raise _broken(name, package, f"{first.value} cannot be imported: {described(error)}") from error
    if not isinstance(found, SearchMethod):
        raise _broken(name, package, f"{first.value} is {type(found).__name__}, not a SearchMethod")
    if found.name != name:
        raise _broken(name, package, f"{first.value} is a method named {found.name}")
    if unknown := set(found.uses) - _FIELDS:
        raise _broken(name, package, f"it uses {', '.join(sorted(unknown))}, which is no field of Search")
    if found.own_class:
        raise _broken(name, package, "own_class is for the method custom alone")
    return found.model_copy(update={"package": package})


# Fields of `Search` that a method may use: those of the built-in methods.
_FIELDS = frozenset(field for method in BUILT_IN for field in method.uses) - {"source"}


def _broken(name: str, package: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"--search {name}: the method of package {package} cannot be used: {reason}; upgrade or uninstall the package, "
        "or search with another method"
    )
