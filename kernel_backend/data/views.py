"""Restore an earlier state of data as a folder of links to existing files that have the same bytes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path, PurePath
from typing import NamedTuple

from kernel_backend.data.base import UNREADABLE, Fingerprint
from kernel_backend.differences.listing import read_list
from kernel_backend.model.record import Value
from kernel_backend.model.snapshot import Data
from kernel_backend.overlay import can_be_led


class View(NamedTuple):
    """Restored data: its folder or file, and the names of files whose earlier bytes do not exist any more."""

    place: Path
    missing: tuple[str, ...]


def view(then: Data, listed: bytes, present: Fingerprint, root: Path, folders: Path) -> View:
    """Restore an earlier state of data as a new folder of links to those files below `root` that have the same bytes.

    `then` is the record of that state, and `listed` its list of files, by which the links are named. `present` is the
    current fingerprint of `root`; files may have been renamed since. The folder is created in `folders`. If any bytes
    are missing, no link is created; a name that leads out of the folder counts as missing.
    """
    alone = root.is_file()
    places = {(str(file.size), file.digest): root if alone else root / file.name for file in present.files}
    there = {known: path for known, path in places.items() if known[1] != UNREADABLE and path.exists()}
    wanted = read_list(listed)
    missing = tuple(name for name, known in wanted.items() if known not in there or _leads_out(name))
    folder = _free(folders, then.digest, wanted.keys())
    if not missing:
        for name, known in wanted.items():
            link(folder / name, there[known[0], known[1]].absolute())
    own = PurePath(then.path).name  # a single file was declared
    return View(folder / own if list(wanted) == [own] else folder, missing)


def _leads_out(name: str) -> bool:
    return PurePath(name).is_absolute() or ".." in PurePath(name).parts


def _free(folders: Path, digest: str, names: Collection[str]) -> Path:
    """Return the path of a folder in `folders`, named by the digest, that has no files besides `names`.

    The folder need not exist. If a training has written other files, such as its output, into an existing folder
    `<digest>`, the first of `<digest>-2`, `<digest>-3` ... without such files is returned.
    """
    for number in count(1):
        folder = folders / (digest if number == 1 else f"{digest}-{number}")
        found = (os.path.relpath(os.path.join(at, name), folder) for at, _, files in os.walk(folder) for name in files)
        if all(name in names for name in found):
            return folder
    raise AssertionError("there is always another number")


def led(data: Data, place: str, cwd: str, params: Mapping[str, Value], before: str) -> dict[str, Value] | None:
    """Return the hyperparameters changed so that a training in the folder `cwd` reads its data from `place`.

    Values that are the data's declared path, or the path `before` from which the previous run read it, become `place`:
    `{"root": "/data/a"}` becomes `{"root": "/views/1"}`. A relative path stays, as an overlay of `cwd` redirects it by
    links, and so does the path at which a training finds remote data. Returns None if no hyperparameter has the path,
    so that it must be in the code, which is not changed.
    """
    relative = bool(data.mapped) or can_be_led(data.name, place, cwd)
    paths = [data.path, before, *([] if relative else [data.name])]
    found = {name: _moved(value, paths, place) for name, value in params.items()}
    return None if found == dict(params) and not relative and place != before else found


def _moved(value: Value, paths: Sequence[str], place: str) -> Value:
    """Return a hyperparameter's value, with `place` instead of the path with which it begins, if that is in `paths`."""
    if not isinstance(value, str):
        return value
    for path in (each.rstrip("/") for each in paths):
        if value.rstrip("/") == path:
            return place
        if value.startswith(f"{path}/"):
            return f"{place.rstrip('/')}/{value[len(path) + 1 :]}"
    return value


def link(place: Path, target: Path) -> None:
    """Make `place` a symbolic link to `target`, atomically, since a training may be reading an existing link."""
    if place.is_symlink() and place.readlink() == target:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    making = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    making.symlink_to(target)
    making.replace(place)
