"""Patch library modules at the moment when a program imports them, without importing them here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class OnImport:
    """Import hook that patches modules at the moment when a program imports them.

    `changes` has functions by module name; each is called with its module, once that is imported.
    """

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def begin(self) -> None:
        """Patch the modules in `changes` that are imported already, and install the import hook for the others."""
        for name, change in self._changes.items():
            if name in sys.modules:
                change(sys.modules[name])
        sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Remove the import hook."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of a module that must be patched; loading it runs the module, then patches it.

        The spec comes from Python's other finders. Return None for a module that need not be patched.
        """
        if name not in self._changes:
            return None
        place = sys.meta_path.index(self)
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(place, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                self._changes[name](module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
