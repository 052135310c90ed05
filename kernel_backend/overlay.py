"""Create an overlay of a folder, in which some files are replaced, and all others are links to the original.

A training in the overlay reads the replaced files by the same relative paths.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ENTRIES = 20_000  # folders beyond this number of links are linked as a whole
_WHOLE = ("node_modules", "__pycache__")  # folders linked as a whole, like those that begin with a dot


class Overlay(NamedTuple):
    """Folder of an overlay, which a training uses as its working folder in place of `cwd`.

    `linked` is True if some of its folders are links, which `os.walk` skips.
    """

    cwd: Path
    linked: bool


def overlay(cwd: Path, targets: Mapping[str, Path], copies: Mapping[str, Path], folder: Path) -> Overlay:
    """Create an overlay of the folder `cwd` below the new folder `folder`.

    `targets` maps paths relative to `cwd` to the files or folders to which the overlay redirects them; `copies` maps
    such paths to files that are copied there. Folders in `cwd`, and in redirected folders, are real folders, since
    `os.walk` does not enter links; files are links. Writing to an existing file therefore changes the original, while
    files created, renamed or deleted stay below `folder`. All parents of `cwd` have links to their other entries, up to
    the root of the file system, so that paths such as `../data` work.
    """
    cwd = cwd.resolve()
    made = _Tree(folder.resolve())
    made.mirror(cwd, cwd)
    for path, target in sorted(targets.items(), key=lambda each: len(Path(each[0]).parts)):  # outer folders first
        made.lead(_absolute(cwd, path), target)
    for path, target in copies.items():
        shutil.copyfile(target, made.cleared(_absolute(cwd, path)))
    return Overlay(made.at(cwd), made.linked)


def overlay_of(cwd: Path, folder: Path) -> Path:
    """Return the folder that replaces `cwd` in the overlay below `folder`."""
    cwd = cwd.resolve()
    return folder / cwd.relative_to(cwd.anchor)


def can_be_led(name: str, place: str, cwd: str) -> bool:
    """Return True if the relative path `name` can be redirected to `place` by links in an overlay of `cwd`.

    The folder `cwd` itself and its parents cannot be redirected, nor can a URL.
    """
    if name.startswith(("/", "~")) or "://" in name or not os.path.isabs(place):
        return False
    return not set(Path(os.path.relpath(os.path.join(cwd, name), cwd)).parts) <= {".."}


def _absolute(cwd: Path, path: str) -> Path:
    return Path(os.path.normpath(cwd / path))


class _Tree:
    """Writer of an overlay's folders and links, which never writes through a link."""

    def __init__(self, root: Path) -> None:
        self._root, self._left, self.linked = root, ENTRIES, False

    def at(self, path: Path) -> Path:
        """Return the location in the overlay that corresponds to an absolute path of the file system."""
        return self._root / path.relative_to(path.anchor)

    def mirror(self, path: Path, source: Path) -> None:
        """Create at `path` in the overlay the folders of `source`, with links to its files."""
        self.cleared(path).mkdir()  # fails instead of following a link
        queue = deque([(self.at(path), _entries(source))])
        while queue:
            place, entries = queue.popleft()
            for entry in entries:
                inside = None if _is_link(entry) or Path(entry.path) == self._root.parent else _entries(entry.path)
                if inside is not None and len(inside) > self._left:
                    inside, self.linked = None, True
                if inside is None:
                    (place / entry.name).symlink_to(os.path.abspath(entry.path))
                else:
                    self._left -= len(inside)
                    (place / entry.name).mkdir()
                    queue.append((place / entry.name, inside))

    def lead(self, path: Path, target: Path) -> None:
        """Make `path` in the overlay lead to `target`: by a link to a file, or by real folders with links to files."""
        if target.is_dir():
            self.mirror(path, target)
        else:
            self.cleared(path).symlink_to(target.absolute())

    def cleared(self, path: Path) -> Path:
        """Remove what the overlay has at `path`, and return the location in the overlay for a new entry.

        Its parents are made real folders, so that nothing is written through a link.
        """
        self._open(path.parent)
        place = self.at(path)
        if place.is_symlink():
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)
        return place

    def _open(self, path: Path) -> None:
        """Replace links at `path` in the overlay, and at its parents, by real folders that link to the same entries."""
        if path != path.parent:
            self._open(path.parent)
        place = self.at(path)
        if place.is_dir() and not place.is_symlink():
            return
        source = path
        if place.is_symlink():  # perhaps to a redirected folder
            source = place.resolve()
            place.unlink()
        place.mkdir(parents=True)
        for entry in _entries(source):
            (place / entry.name).symlink_to(entry.path)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # missing or unreadable: targets below it still work
        return []


def _is_link(entry: os.DirEntry[str]) -> bool:
    """Return True if the overlay has a link for a folder's entry: a file, a link, or a folder not to be read.

    Hidden folders, for example, are linked as a whole.
    """
    return not entry.is_dir(follow_symlinks=False) or entry.name.startswith(".") or entry.name in _WHOLE
