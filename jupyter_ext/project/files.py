"""List the files below a folder that a snapshot includes, following ignore rules and checking links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from jupyter_ext.project.ignored import Ignored


class Tree:
    """Walk over project folders; `left` lists symbolic links that lead out of the project and are not followed."""

    def __init__(self, root: Path) -> None:
        self.left: list[Path] = []
        self._real = root.resolve()
        self._ignored = Ignored(root)

    def holds(self, path: Path) -> bool:
        """Return whether a path, with links resolved, is in the project."""
        return path.resolve().is_relative_to(self._real)

    def files(self, folder: Path, ignored: Ignored | None = None) -> Iterator[tuple[Path, int]]:
        """Yield the regular files below a folder with their sizes in bytes; raises OSError for an unreadable folder.

        Files that the rules `ignored` exclude are left out; by default these are the rules of the root folder.
        """
        yield from self._files(folder, ignored or self._ignored, frozenset({folder.resolve()}))

    def _files(self, folder: Path, ignored: Ignored, above: frozenset[Path]) -> Iterator[tuple[Path, int]]:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = Path(entry.path)
            try:
                about = entry.stat()
            except OSError:  # a broken link, or deleted meanwhile
                continue
            is_folder = stat.S_ISDIR(about.st_mode)
            if ignored(path, is_folder):
                continue
            if entry.is_symlink() and not self.holds(path):
                self.left.append(path)
            elif is_folder:
                real = path.resolve()
                if real not in above:  # otherwise it is a circular link
                    yield from self._files(path, ignored, above | {real})
            elif stat.S_ISREG(about.st_mode):
                yield path, about.st_size
