"""A folder as it was, where only some of its files have changed: links, so that nothing is copied and nothing touched.

A training that stands in it reads the files of then by the relative paths that its code has always used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def overlay(cwd: Path, targets: Mapping[str, Path], folder: Path) -> Path:
    """`cwd` once more, below `folder`: there each path in `targets`, relative to it, leads to another file or folder.

    All else leads to where it is, up to the root of the file system, so that `../data` is found, too. What is written
    over goes through the links; a new file in `cwd` itself stays below `folder`. It may have been made before.
    """
    cwd = cwd.resolve()
    leads = {Path(os.path.normpath(cwd / path)): target for path, target in targets.items()}
    opened = {parent for path in [cwd / "any", *leads] for parent in path.parents}
    for place in sorted(opened):
        inside = folder / place.relative_to(place.anchor)
        if inside.is_symlink():  # to what may not be written in
            inside.unlink()
        inside.mkdir(parents=True, exist_ok=True)
        _forget(inside, place)
        for entry in _entries(place):
            if entry not in opened and entry not in leads:
                _link(inside / entry.name, entry)
    for path, target in leads.items():
        _link(folder / path.relative_to(path.anchor), target)
    return folder / cwd.relative_to(cwd.anchor)


def _forget(inside: Path, place: Path) -> None:
    """Take away the links of an earlier time: what they lead to may be gone."""
    for each in _entries(inside):
        if each.is_symlink() and each.readlink() == place / each.name:
            each.unlink()


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:  # gone, or not for us to read: what is known of it is led to all the same
        return []


def _link(place: Path, target: Path) -> None:
    if place.is_symlink():
        place.unlink()
    elif place.exists():  # a training made it before
        return
    place.symlink_to(target.absolute())
