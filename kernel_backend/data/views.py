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
    """What looks as declared data did, a folder or a file, and the names of files whose bytes are nowhere any more."""

    place: Path
    missing: tuple[str, ...]


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
    return View(folder / root.name if alone and len(wanted) == 1 else folder, missing)


def led(data: Data, place: str, cwd: str, params: Mapping[str, Value], before: str) -> dict[str, Value] | None:
    """The hyperparameters with which a training in `cwd` reads `place` instead of the data, which it read at `before`.

    One that names the data names the place instead; a relative path is led there by links (`overlay`). None where the
    code must have the path within itself.
    """
    named = {name for name, value in params.items() if value in (data.name, data.path, before)}
    if not named and not can_be_led(data.name, cwd):
        return None
    return {name: place if name in named else value for name, value in params.items()}


def can_be_led(name: str, cwd: str) -> bool:
    """Whether what is declared by this name in `cwd` can be led elsewhere: `cwd` itself, and above it, cannot be."""
    below = PurePath(os.path.relpath(os.path.join(cwd, name), cwd))
    return not (name.startswith(("/", "~")) or "://" in name or set(below.parts) <= {".."})


def _link(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    place.symlink_to(target.absolute())
