"""Inspect the modules imported in this process: which names they export, and which packages project modules use."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterable

from kernel_backend.installed_code import is_of_package


def packages_used_by(package: str) -> frozenset[str]:
    """Return the packages to which a project package refers at its modules' top level; empty for installed packages."""
    if package in sys.stdlib_module_names:
        return frozenset()
    modules = [each for name, each in list(sys.modules.items()) if name == package or name.startswith(f"{package}.")]
    if not modules or not all(map(is_of_project, modules)):
        return frozenset()
    return frozenset(top for module in modules for value in vars(module).values() if (top := _package_of(value)))


def is_of_project(module: types.ModuleType) -> bool:
    """Return True if a module has a file, and is not in the standard library or an installed package."""
    file = getattr(module, "__file__", None)
    return file is not None and not is_of_package(file)


def star_names(nodes: Iterable[ast.stmt]) -> set[str]:
    """Return the names bound by those of the statements that have the form `from x import *`.

    Modules that are not imported in this process are left out.
    """
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
