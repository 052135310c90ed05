"""Definitions as modules, `kernel_backend.snapshots.loaded.s_<snapshot>`, in every process that has the same home.

What `job.load()` returns is of their classes, so that it can be pickled, and read tomorrow, or by a job.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from kernel_backend.home import home
from kernel_backend.model.snapshot import DEFINITION, DESCRIPTION, Snapshot
from kernel_backend.snapshots.archive import unpack
from kernel_backend.snapshots.shipped import shipped_folders

_DIGITS = 16  # of a snapshot's digest


def loaded(id: str, archive: Callable[[], bytes]) -> ModuleType:
    """The definition of snapshot `id` as a module, run once in a process; `archive` is asked for at the first time.

    Its local modules are those of the snapshot, unless this process has imported others of their names before.
    """
    name = f"s_{id[:_DIGITS]}"
    folder = _folder(name)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as new:
            unpack(archive(), Path(new) / name)
            if not folder.is_dir():
                shutil.move(Path(new) / name, folder)
    return importlib.import_module(f"{__name__}.{name}")


def _folder(name: str) -> Path:
    return home() / "loaded" / name


class _Finder(MetaPathFinder):
    """Finds the definitions that this home has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's file, where there is one."""
        package, _, name = fullname.rpartition(".")
        file = _folder(name) / DEFINITION
        if package != __name__ or not file.is_file():
            return None
        return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))


class _Loader(SourceFileLoader):
    """Runs a definition with the modules that travelled with it in front of others."""

    def exec_module(self, module: ModuleType) -> None:
        """Run it."""
        code, before = Path(self.path).parent, list(sys.path)
        snapshot = Snapshot.model_validate_json((code / DESCRIPTION).read_bytes())
        sys.path[:0] = map(str, shipped_folders(code, snapshot.project))
        try:
            super().exec_module(module)
        finally:
            sys.path[:] = before


sys.meta_path.append(_Finder())
