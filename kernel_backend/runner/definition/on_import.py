"""Patch library modules at the moment when a program imports them, without importing them here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class OnImport:
    """Import hook that calls, for each module in `changes`, a function with that module once it has been imported."""

    def __init__(self, changes: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def begin(self) -> None:
        """Patch those of the modules that are imported already, and install the import hook for the rest."""
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
        """Return the import spec for a module that must be patched; loading by it runs the module, then patches it.

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
