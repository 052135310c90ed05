"""Where the file of a module is, without running any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

OURS = frozenset({"daylight", "kernel_backend", "jupyter_ext"})  # a worker has its own
_INSTALLED = ("/site-packages/", "/dist-packages/")


class FoundModule(NamedTuple):
    """A module: its file (None: a folder without `__init__.py`), and the folders where its own modules are."""

    name: str
    file: Path | None
    folders: tuple[Path, ...]

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders of a package, or a module's file."""
        return self.folders or ((self.file,) if self.file else ())


class Modules:
    """Looks modules up: as this process has them imported, else on its module path.

    With `search`, folders that lead the module path, what this process has imported does not count.
    """

    def __init__(self, search: Sequence[Path] = ()) -> None:
        self._search = [str(folder) for folder in search]
        self._known: dict[str, FoundModule | None] = {}

    def find(self, name: str) -> FoundModule | None:
        """The module of this full name; None where there is none, or none with a file."""
        if name not in self._known:
            self._known[name] = _found(name, self._spec(name))
        return self._known[name]

    def exists(self, name: str) -> bool:
        """Whether a module of the top level can be imported, with a file or without."""
        return name in sys.modules or self._spec(name) is not None

    def _spec(self, name: str) -> ModuleSpec | None:
        above, _, own = name.rpartition(".")
        loaded = None if self._search else getattr(sys.modules.get(name), "__spec__", None)
        if isinstance(loaded, ModuleSpec) and _fits(loaded):
            return loaded
        try:
            if above:
                parent = self.find(above)
                # By its own name alone: for the full one Python would look at the parent, which nobody has imported.
                return PathFinder.find_spec(own, [str(each) for each in parent.folders]) if parent else None
            if self._search and (spec := PathFinder.find_spec(name, [*self._search, *sys.path])):
                return spec
            return importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError, OSError):  # it was made by hand, or its finder is of no use
            return None


def is_third_party(found: FoundModule) -> bool:
    """Whether a module belongs to Python or to an installed distribution."""
    return all(is_installed(path) for path in found.places)


def is_installed(path: Path | str) -> bool:
    """Whether a file lies where Python or pip put it; by its text alone, for a kernel asks it of thousands of files."""
    text = f"{path}/"
    return any(each in text for each in _INSTALLED) or text.startswith(_library())


@cache
def _library() -> tuple[str, ...]:
    return tuple(f"{sysconfig.get_path(each)}/" for each in ("stdlib", "platstdlib"))


def editable_folders() -> Iterator[Path]:
    """The folders of distributions that were installed as `pip install -e`."""
    for each in importlib.metadata.distributions():
        try:
            told = json.loads(each.read_text("direct_url.json") or "{}")
        except (OSError, ValueError):
            continue
        if told.get("dir_info", {}).get("editable") and str(told.get("url", "")).startswith("file:"):
            yield Path(unquote(urlparse(told["url"]).path))


def _fits(spec: ModuleSpec) -> bool:
    """Whether the file's name is the module's own, so that it can be imported by it."""
    if spec.submodule_search_locations is not None:
        return all(Path(each).name == spec.name.rpartition(".")[2] for each in spec.submodule_search_locations)
    return spec.origin is not None and Path(spec.origin).name.split(".")[0] == spec.name.rpartition(".")[2]


def _found(name: str, spec: ModuleSpec | None) -> FoundModule | None:
    if spec is None:
        return None
    folders = tuple(Path(os.path.abspath(each)) for each in spec.submodule_search_locations or ())
    file = Path(os.path.abspath(spec.origin)) if spec.has_location and spec.origin else None
    return FoundModule(name, file, folders) if file or folders else None
