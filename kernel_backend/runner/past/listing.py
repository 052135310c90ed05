"""List a folder: what was in it when a program began, and what has come to be there since."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

MOST = 200_000  # entries; a larger folder is not listed

Skips = Callable[[str], bool]


def entries(folder: str, skips: Skips, known: set[str] | None = None) -> Iterator[str]:
    """Yield the paths of all files and folders below `folder`, relative to it; a folder before what is in it.

    Paths for which `skips` is true, given an absolute path, are left out with all that is below them. With `known`,
    only paths that are not in it are returned, and nothing below these.
    """
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            found = list(os.scandir(os.path.join(folder, below)))
        except OSError:
            continue
        for entry in found:
            path = f"{below}/{entry.name}" if below else entry.name  # half of the time of os.path.join
            if skips(entry.path):
                continue
            new = known is not None and path not in known
            if known is None or new:
                yield path
            if not new and entry.is_dir(follow_symlinks=False):
                waiting.append(path)


def listed(folder: str, skips: Skips) -> set[str] | None:
    """Return the paths below `folder`, relative to it; None if there are more than `MOST`."""
    found: set[str] = set()
    for path in entries(folder, skips):
        found.add(path)
        if len(found) > MOST:
            return None
    return found


def store(names: set[str], path: Path) -> None:
    """Write a listing to a file."""
    path.write_bytes(os.fsencode("\0".join(names)))


def stored(path: Path) -> set[str] | None:
    """Return the listing that a file holds; None if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return {*os.fsdecode(data).split("\0")} - {""}
