"""What the modules of the project that this process has imported use themselves."""

from __future__ import annotations

import sys
import types

_INSTALLED = ("site-packages", "dist-packages")


def packages_used_by(package: str) -> frozenset[str]:
    """Return the packages that a package refers to at its modules' top level; nothing for an installed one."""
    if package in sys.stdlib_module_names:
        return frozenset()
    modules = [each for name, each in list(sys.modules.items()) if name == package or name.startswith(f"{package}.")]
    if not modules or not all(map(_is_of_project, modules)):
        return frozenset()
    return frozenset(top for module in modules for value in vars(module).values() if (top := _package_of(value)))


def _is_of_project(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and not any(part in file for part in _INSTALLED)


def _package_of(value: object) -> str | None:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else None
