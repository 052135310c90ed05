"""Data as it was, made of what is still there: a folder of links to those files whose bytes are those of then."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from kernel_backend.data.base import UNREADABLE, Fingerprint
from kernel_backend.differences.listing import read_list
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Data


class View(NamedTuple):
    """A folder that looks as declared data did, and the names of files whose bytes are nowhere any more."""

    folder: Path
    missing: tuple[str, ...]


class Seen(NamedTuple):
    """How a training comes to see a view: from another working directory, or by another hyperparameter."""

    cwd: str
    params: dict[str, Value]


def view(listed: bytes, present: Fingerprint, root: Path, folder: Path) -> View:
    """Links in `folder`, named as in the list of then, to files below `root` (now `present`) with the same bytes.

    A file may have been renamed meanwhile. Nothing is made where bytes are missing.
    """
    alone = root.is_file()
    places = {(str(file.size), file.digest): root if alone else root / file.name for file in present.files}
    there = {known: path for known, path in places.items() if known[1] != UNREADABLE and path.exists()}
    wanted = read_list(listed)
    missing = tuple(name for name, known in wanted.items() if known not in there)
    if not missing:
        for name, known in wanted.items():
            _link(folder / name, there[known[0], known[1]])
    return View(folder, missing)


def seen_by(data: Data, view: View, cwd: Path, params: Mapping[str, Value], folder: Path) -> Seen | None:
    """Where a training must stand, and with which hyperparameters, to read the view instead of the data itself.

    A hyperparameter that names the data names the view instead. Below a relative path it is seen from a working
    directory in `folder`, made of links to all else of `cwd`. None where the code must have the path within itself.
    """
    target = view.folder / Path(data.path).name if _is_file(view, data) else view.folder
    named = {name for name, value in params.items() if value in (data.name, data.path)}
    if named:
        return Seen(str(cwd), {name: str(target) if name in named else value for name, value in params.items()})
    name = PurePath(data.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        return None
    _beside(cwd, name.parts, folder, target)
    return Seen(str(folder), dict(params))


def _is_file(view: View, data: Data) -> bool:
    return data.files == 1 and (view.folder / Path(data.path).name).exists()


def _beside(cwd: Path, parts: tuple[str, ...], folder: Path, target: Path) -> None:
    """Links in `folder` to everything in `cwd`, but for the way `parts`, at whose end is `target`."""
    folder.mkdir(parents=True, exist_ok=True)
    first, *rest = parts
    for entry in os.scandir(cwd):
        if entry.name != first:
            _link(folder / entry.name, Path(entry.path))
    if rest:
        _beside(cwd / first, tuple(rest), folder / first, target)
    else:
        _link(folder / first, target)


def _link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    place.symlink_to(target.absolute())
