"""Where checkpoints lie, and how a place is opened: the one file that knows which kinds of place there are."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.checkpoints.base import Checkpoints
from kernel_backend.checkpoints.directory import Directory


def open_place(where: str) -> Checkpoints:
    """The checkpoints at `where`: a folder."""
    return Directory(Path(where))


class Places:
    """All trials' checkpoints under one root, a folder: `<root>/<experiment>/<trial>`."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")

    def where(self, experiment: int, trial: int) -> str:
        """The place of a trial's checkpoints."""
        return f"{self._root}/{experiment}/{trial}"

    def open(self, experiment: int, trial: int) -> Checkpoints:
        """The checkpoints of a trial."""
        return open_place(self.where(experiment, trial))
