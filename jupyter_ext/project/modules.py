"""Find the file of a module without executing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from kernel_backend.installed_code import is_installed

OURS = frozenset({"daylight", "kernel_backend", "jupyter_ext"})  # workers have their own


class FoundModule(NamedTuple):
    """Module with its file (None for a folder without `__init__.py`) and the folders of its submodules."""

    name: str
    file: Path | None
    folders: tuple[Path, ...]

    @property
    def places(self) -> tuple[Path, ...]:
        """Return the folders of a package, or the file of a plain module."""
        return self.folders or ((self.file,) if self.file else ())


class Modules:
    """Finder of modules: among those that this process has imported, else on its sys.path.

    If `search` is given, these folders come first on sys.path, and imports of this process are ignored.
    """

    def __init__(self, search: Sequence[Path] = ()) -> None:
        self._search = [str(folder) for folder in search]
        self._known: dict[str, FoundModule | None] = {}

    def find(self, name: str) -> FoundModule | None:
        """Return the module of this full name; None if it cannot be found or has neither file nor folder."""
        if name not in self._known:
            self._known[name] = _found(name, self._spec(name))
        return self._known[name]

    def exists(self, name: str) -> bool:
        """Return whether a top-level module of this name can be imported, with or without a file."""
        return name in sys.modules or self._spec(name) is not None

    def _spec(self, name: str) -> ModuleSpec | None:
        above, _, own = name.rpartition(".")
        loaded = None if self._search else getattr(sys.modules.get(name), "__spec__", None)
        if isinstance(loaded, ModuleSpec) and _fits(loaded):
            return loaded
        try:
            if above:
                parent = self.find(above)
                # By its last name only: for the full name Python would import the parent.
                return PathFinder.find_spec(own, [str(each) for each in parent.folders]) if parent else None
            if self._search and (spec := PathFinder.find_spec(name, [*self._search, *sys.path])):
                return spec
            return importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError, OSError):  # created without a spec, or its finder fails
            return None


def is_third_party(found: FoundModule) -> bool:
    """Return whether a module belongs to Python or to an installed package."""
    return all(is_installed(path) for path in found.places)


def editable_folders() -> Iterator[Path]:
    """Yield the folders of distributions that were installed with `pip install -e`."""
    for each in importlib.metadata.distributions():
        try:
            told = json.loads(each.read_text("direct_url.json") or "{}")
        except (OSError, ValueError):
            continue
        if told.get("dir_info", {}).get("editable") and str(told.get("url", "")).startswith("file:"):
            yield Path(unquote(urlparse(told["url"]).path))


def _fits(spec: ModuleSpec) -> bool:
    """Return whether an import spec's file or folder has the module's name, so that a copy of it can be imported."""
    if spec.submodule_search_locations is not None:
        return all(Path(each).name == spec.name.rpartition(".")[2] for each in spec.submodule_search_locations)
    return spec.origin is not None and Path(spec.origin).name.split(".")[0] == spec.name.rpartition(".")[2]


def _found(name: str, spec: ModuleSpec | None) -> FoundModule | None:
    if spec is None:
        return None
    folders = tuple(Path(os.path.abspath(each)) for each in spec.submodule_search_locations or ())
    file = Path(os.path.abspath(spec.origin)) if spec.has_location and spec.origin else None
    return FoundModule(name, file, folders) if file or folders else None
