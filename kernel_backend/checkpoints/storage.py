"""Where checkpoints lie, and how a place is opened: the one file that knows which kinds of place there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_backend.checkpoints.base import Checkpoints
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.remote import Remote
from kernel_backend.home import largest_of

Identity = Callable[[int, int], str]  # of a trial, by experiment and index; raises NotFound


def open_storage(where: str, uid: str | None = None) -> Checkpoints:
    """The checkpoints at `where`: a folder, or a URL that fsspec knows; raises DaylightError for any other.

    `uid` is the identity of the trial whose they are: what names another is not listed. None: whosever they are.
    """
    if where.startswith("file://"):
        where = where.removeprefix("file://")
    return Remote(where, uid) if "://" in where else Directory(Path(where), uid)


class CheckpointStorage:
    """All trials' checkpoints under one root, a folder or a URL: `<root>/<experiment>/<trial>`."""

    def __init__(self, root: str, identity: Identity | None = None) -> None:
        """`identity` tells trials apart whose numbers are the same; without it whatever is in a place is listed."""
        self._root, self._identity = root.rstrip("/"), identity
        open_storage(self._root)  # who cannot reach it shall hear so at once

    def where(self, experiment: int, trial: int) -> str:
        """The place of a trial's checkpoints."""
        return f"{self._root}/{experiment}/{trial}"

    def largest_number(self) -> int:
        """Return the largest number of an experiment that has a place here; raises OSError."""
        return largest_of(open_storage(self._root).names())

    def uid(self, experiment: int, trial: int) -> str:
        """Return the identity that a trial's checkpoints name; raises NotFound where there is no such trial."""
        return "" if self._identity is None else self._identity(experiment, trial)

    def open(self, experiment: int, trial: int) -> Checkpoints:
        """The checkpoints of a trial; raises NotFound where there is no such trial."""
        uid = None if self._identity is None else self._identity(experiment, trial)
        return open_storage(self.where(experiment, trial), uid)
