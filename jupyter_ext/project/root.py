"""Where a project begins, and where the notebook stands in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MARKS = (".git", "pyproject.toml")


class ProjectPlace(NamedTuple):
    """The project's root, and the folder in which the cell runs; both absolute, links on the way left as they are."""

    root: Path
    cwd: Path

    def below(self, path: Path) -> str | None:
        """`src/helpers.py` for a path under the root, else None."""
        try:
            return Path(os.path.abspath(path)).relative_to(self.root).as_posix()
        except ValueError:
            return None


def place_of(folder: Path, cwd: Path | None = None) -> ProjectPlace:
    """The nearest folder upward of `folder` with .git or pyproject.toml, else `folder` itself.

    `cwd` is where the job's relative paths lead, if that is another folder: it counts where it is under the root.
    """
    folder = Path(os.path.abspath(folder))
    root = next((each for each in (folder, *folder.parents) if any((each / mark).exists() for mark in _MARKS)), folder)
    place = ProjectPlace(root, folder)
    return ProjectPlace(root, cwd) if cwd is not None and place.below(cwd) is not None else place
