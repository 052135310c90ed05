"""Read and write a program's variables: globals of its modules, and locals of functions that are running."""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

_OWN = frozenset(
    {"__builtins__", "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__"}
)


def program_modules(
    builtins: Mapping[str, Any], main: ModuleType, foreign: dict[int, Any]
) -> dict[str, dict[str, Any]]:
    """Return the namespaces of the modules that belong to the program and have been imported, by module name.

    They are recognised by `builtins`, a dict that only the program's modules have; `main` is its main module. `foreign`
    caches library modules by `id()`, so that thousands of them are not inspected again.
    """
    found = {"__main__": vars(main)}
    for name, module in sys.modules.copy().items():
        if id(module) in foreign:
            continue
        if isinstance(module, ModuleType) and module.__dict__.get("__builtins__") is builtins:
            found.setdefault(name, vars(module))
        else:
            foreign[id(module)] = module
    return found


def is_made(module: ModuleType) -> bool:
    """Return True for a module that the program has created by `types.ModuleType(...)` instead of importing it.

    Examples
    --------
    >>> is_made(ModuleType("state")), is_made(inspect)
    (True, False)
    """
    own = vars(module)
    return type(module) is ModuleType and own.get("__spec__") is None and "__builtins__" not in own


def program_frames(frame: FrameType | None, builtins: Mapping[str, Any]) -> list[FrameType]:
    """Return the stack frames of the program's own functions, from the outermost to `frame`.

    They are recognised by the dict `builtins`, which only the program's modules have.
    """
    found: list[FrameType] = []
    while frame is not None:
        if frame.f_builtins is builtins and frame.f_code.co_flags & inspect.CO_NEWLOCALS:
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def held_by_libraries(frame: FrameType | None, builtins: Mapping[str, Any]) -> dict[int, Any]:
    """Return, by `id()`, the values in the local variables of library functions that have called the program back.

    Their frames are on the stack between those of the program, such as a hyperparameter search that calls an objective.
    `builtins` is the dict that only the program's modules have; `frame` is the innermost running function.
    """
    between: list[FrameType] = []
    found: dict[int, Any] = {}
    while frame is not None:
        if frame.f_builtins is builtins:
            found |= {id(value): value for each in between for value in each.f_locals.values()}
            between = []
        elif not str(frame.f_globals.get("__name__", "")).startswith("kernel_backend."):
            between.append(frame)
        frame = frame.f_back
    return found


def names(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables in a namespace with their values, without names that Python itself defines there."""
    return {name: value for name, value in namespace.items() if name not in _OWN}


def set_globals(namespace: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Give a module exactly these global variables; other variables of the program are deleted."""
    for name in names(namespace).keys() - values.keys():
        del namespace[name]
    namespace.update(values)


def set_locals(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Give a running function exactly these local variables; other variables are deleted."""
    held = frame.f_locals
    if sys.version_info >= (3, 13):  # writes through to the frame (PEP 667), but cannot unbind
        held.update(values)
        return
    held.clear()
    held.update(values)
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))
