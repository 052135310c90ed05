"""Inspect the modules that this process has imported: exported names, and packages that project modules use."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterable

_INSTALLED = ("site-packages", "dist-packages")


def packages_used_by(package: str) -> frozenset[str]:
    """Return the packages that a package refers to at its modules' top level; nothing for an installed one."""
    if package in sys.stdlib_module_names:
        return frozenset()
    modules = [each for name, each in list(sys.modules.items()) if name == package or name.startswith(f"{package}.")]
    if not modules or not all(map(is_of_project, modules)):
        return frozenset()
    return frozenset(top for module in modules for value in vars(module).values() if (top := _package_of(value)))


def is_of_project(module: types.ModuleType) -> bool:
    """Return whether a module has a file that is not installed."""
    file = getattr(module, "__file__", None)
    return file is not None and not any(part in file for part in _INSTALLED)


def star_names(nodes: Iterable[ast.stmt]) -> set[str]:
    """Return the names that `from x import *` among these statements binds, as far as the module is loaded."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            module = sys.modules.get(node.module or "")
            public = [name for name in vars(module) if not name.startswith("_")] if module else []
            found |= set(getattr(module, "__all__", public))
    return found


def _package_of(value: object) -> str | None:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else None
