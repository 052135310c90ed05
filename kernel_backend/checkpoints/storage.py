"""Open checkpoint storage by location: a folder or an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_backend.checkpoints.base import Checkpoints
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.remote import Remote
from kernel_backend.home import largest_of

Identity = Callable[[int, int], str]  # returns a trial's uid by experiment and trial number; raises NotFound


def open_storage(where: str, uid: str | None = None) -> Checkpoints:
    """Open the checkpoints at `where`, a folder or an fsspec URL; raise DaylightError for anything else.

    With a trial's `uid`, checkpoints of other trials are not listed; None lists all.
    """
    if where.startswith("file://"):
        where = where.removeprefix("file://")
    return Remote(where, uid) if "://" in where else Directory(Path(where), uid)


class CheckpointStorage:
    """Checkpoints of all trials under one root, a folder or a URL: `<root>/<experiment>/<trial>`."""

    def __init__(self, root: str, identity: Identity | None = None) -> None:
        """Open the storage at a root folder or URL.

        `identity` returns the uid of a trial. If it is given, only checkpoints with this uid are listed, else all.
        """
        self._root, self._identity = root.rstrip("/"), identity
        open_storage(self._root)  # fails now if the root cannot be reached

    def where(self, experiment: int, trial: int) -> str:
        """Return the folder or URL of a trial's checkpoints."""
        return f"{self._root}/{experiment}/{trial}"

    @property
    def root(self) -> str:
        """Return the folder or URL of all checkpoints; "" if each is in its owner's workspace."""
        return self._root

    @property
    def linked(self) -> bool:
        """Return True if equal frozen parts (tensors that a training does not change) share one file.

        In an object store each checkpoint has a copy.
        """
        return isinstance(open_storage(self._root), Directory)

    def largest_number(self) -> int:
        """Return the largest experiment number that has an entry below the root; raise OSError."""
        return largest_of(open_storage(self._root).names())

    def uid(self, experiment: int, trial: int) -> str:
        """Return the uid of a trial, which its checkpoints record; "" without `identity`.

        Raises NotFound if there is no such trial.
        """
        return "" if self._identity is None else self._identity(experiment, trial)

    def open(self, experiment: int, trial: int) -> Checkpoints:
        """Open the checkpoints of a trial; raise NotFound if there is no such trial."""
        uid = None if self._identity is None else self._identity(experiment, trial)
        return open_storage(self.where(experiment, trial), uid)
