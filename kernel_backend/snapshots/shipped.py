"""Modules that travelled with a snapshot: they are imported before any others of their names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from kernel_backend.model.snapshot import DESCRIPTION, EDITABLE, PROJECT, Project, Snapshot


def shipped_folders(code: Path, project: Project | None) -> list[Path]:
    """The folders of an unpacked snapshot that lead the module path."""
    return [code / PROJECT / path for path in project.paths] if project else []


def editable_folders(code: Path) -> list[Path]:
    """The folders of an unpacked snapshot that end the module path: editable distributions, should they be gone."""
    return sorted((code / EDITABLE).glob("*"))


def working_folder(cwd: str, code: Path) -> str:
    """Where an unpacked snapshot runs: in `cwd`, else, where that is gone, in its stand-in among the shipped files."""
    if Path(cwd).is_dir():
        return cwd
    project = Snapshot.model_validate_json((code / DESCRIPTION).read_bytes()).project
    inside = code / PROJECT / (project.cwd if project else ".")
    return str(inside if inside.is_dir() else code)


class Shipped(MetaPathFinder):
    """Finds modules of the top level in these folders, whatever stands first on `sys.path`.

    A definition may do `sys.path.insert(0, "../src")`: that folder may have changed since, or be gone.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [str(folder) for folder in folders]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The shipped module; None for those within packages, and for folders without `__init__.py`."""
        spec = PathFinder.find_spec(fullname, self._folders) if path is None else None
        # Parts of such a package may lie elsewhere, too: sys.path leads to all of them.
        return spec if spec is not None and spec.origin is not None else None


def lead(folders: Sequence[Path]) -> None:
    """Have modules of these folders imported before any others of their names, in this process and those it forks."""
    if folders:
        sys.meta_path.insert(0, Shipped(folders))
