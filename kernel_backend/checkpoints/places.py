"""Where checkpoints lie, and how a place is opened: the one file that knows which kinds of place there are."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.checkpoints.base import Checkpoints
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.remote import Remote


def open_place(where: str) -> Checkpoints:
    """The checkpoints at `where`: a folder, or a URL that fsspec knows; raises DaylightError for any other."""
    if where.startswith("file://"):
        where = where.removeprefix("file://")
    return Remote(where) if "://" in where else Directory(Path(where))


class Places:
    """All trials' checkpoints under one root, a folder or a URL: `<root>/<experiment>/<trial>`."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        open_place(self._root)  # who cannot reach it shall hear so at once

    def where(self, experiment: int, trial: int) -> str:
        """The place of a trial's checkpoints."""
        return f"{self._root}/{experiment}/{trial}"

    def open(self, experiment: int, trial: int) -> Checkpoints:
        """The checkpoints of a trial."""
        return open_place(self.where(experiment, trial))
