"""Modules that travelled with a snapshot: they are imported before any others of their names."""

from __future__ import annotations

import filecmp
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kernel_backend.model.snapshot import DESCRIPTION, EDITABLE, PROJECT, Project, Snapshot
from kernel_backend.overlay import overlay

_NAMED = 3  # files, in a sentence


def shipped_folders(code: Path, project: Project | None) -> list[Path]:
    """The folders of an unpacked snapshot that lead the module path."""
    return [code / PROJECT / path for path in project.paths] if project else []


def editable_folders(code: Path) -> list[Path]:
    """The folders of an unpacked snapshot that end the module path: editable distributions, should they be gone."""
    return sorted((code / EDITABLE).glob("*"))


class Working(NamedTuple):
    """Where a snapshot runs, and what a person should know about that."""

    cwd: str
    note: str | None = None


def working_folder(cwd: str, code: Path, stand_in: Path, data_at: Mapping[str, Path]) -> Working:
    """Where an unpacked snapshot runs: in `cwd`, where the files there are those that travelled with it.

    Where some have changed or are gone, or where `data_at` (relative path -> place) says that data is elsewhere: in a
    likeness of `cwd` below `stand_in` that has them so. Where the folder itself is gone, among the shipped files.
    Modules do not count: they are imported from `code` anyway.
    """
    project = Snapshot.model_validate_json((code / DESCRIPTION).read_bytes()).project
    top = code / PROJECT / (project.cwd if project else ".")
    exists = Path(cwd).is_dir()
    if not exists and not data_at:
        return Working(str(top if top.is_dir() else code))
    shipped = {os.path.relpath(path, top): path for path in _plain_files(code / PROJECT)} if project else {}
    others = {place: path for place, path in shipped.items() if not _same(Path(cwd) / place, path)}
    if not others and not data_at:
        return Working(cwd)
    there = overlay(Path(cwd), {**others, **data_at}, stand_in)
    return Working(str(there), _changed(cwd, there, sorted(others)) if others and exists else None)


def _changed(cwd: str, there: Path, others: Sequence[str]) -> str:
    gone = sum(not Path(cwd, place).exists() for place in others)
    named = ", ".join(others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    said = "is gone" if gone == 1 == len(others) else "are gone" if gone == len(others) else "changed since the submit"
    return (
        f"{named}{more} {said}: this runs in {there}, where all is as in {cwd} but for these, which are as submitted. "
        "New files that it writes by a relative path are there, too"
    )


def _plain_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.suffix != ".py" and path.is_file()]


def _same(a: Path, b: Path) -> bool:
    try:
        return filecmp.cmp(a, b, shallow=False)
    except OSError:
        return False


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
