"""Find the root folder of a project, and the notebook's folder in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MARKS = (".git", "pyproject.toml")


class ProjectPlace(NamedTuple):
    """Root folder of the project and working folder of the cell, both absolute, with links not resolved."""

    root: Path
    cwd: Path

    def below(self, path: Path) -> str | None:
        """Return a path relative to the project's root, such as `src/helpers.py`; None if it is not below the root."""
        try:
            return Path(os.path.abspath(path)).relative_to(self.root).as_posix()
        except ValueError:
            return None


def place_of(folder: Path, cwd: Path | None = None) -> ProjectPlace:
    """Return the project's root and working folder; the root is the nearest parent with .git or pyproject.toml.

    Without such a parent it is `cwd`, the job's working folder, if `folder` is below that, else `folder` itself. `cwd`
    is ignored if it is not below the root.
    """
    folder = Path(os.path.abspath(folder))
    top = folder if cwd is None or not folder.is_relative_to(cwd) else cwd
    root = next((each for each in (folder, *folder.parents) if any((each / mark).exists() for mark in _MARKS)), top)
    place = ProjectPlace(root, folder)
    return ProjectPlace(root, cwd) if cwd is not None and place.below(cwd) is not None else place
