"""Disk space of an experiment, and the rules by which a deleted one is freed."""

from __future__ import annotations

import time
from typing import Any

from kernel_backend.errors import Conflict
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Record
from kernel_backend.model.states import EXPERIMENT_ENDED

UNDO_S = 86400.0  # for so long a deleted experiment can be brought back


class DiskUsage(Record):
    """What an experiment holds on disk, and what of it stays when it is deleted."""

    experiment: int
    name: str
    owner: str
    bytes: dict[str, int]  # by folder of the home: checkpoints, artifacts, attempts, snapshots, ...
    stays: int = 0  # bytes that a deletion does not free
    needed: tuple[str, ...] = ()  # why, a sentence each

    @property
    def total(self) -> int:
        """Return all bytes."""
        return sum(self.bytes.values())

    @property
    def frees(self) -> int:
        """Return how many bytes a deletion frees."""
        return self.total - self.stays


def delete(before: Experiment, now: float) -> dict[str, Any]:
    """Return the fields that differ once it is deleted; raises Conflict unless it has ended."""
    if before.state not in EXPERIMENT_ENDED:
        number = before.number
        raise Conflict(
            f"experiment #{number} has not ended: only an ended one can be deleted; end it with daylight stop {number}"
        )
    return {} if before.deleted_at is not None else {"deleted_at": now}


def undelete(before: Experiment, now: float) -> dict[str, Any]:
    """Return the fields that differ once it is back; raises Conflict where its day is over."""
    if before.deleted_at is None:
        return {}
    if may_purge(before, now):
        raise Conflict(
            f"experiment #{before.number} was deleted {_date(before.deleted_at)}, more than a day ago: "
            "it cannot be brought back any more"
        )
    return {"deleted_at": None}


def may_purge(experiment: Experiment, now: float) -> bool:
    """Return whether the files of a deleted experiment may go."""
    deleted = experiment.deleted_at is not None and experiment.deleted_at + UNDO_S < now
    return deleted and experiment.state in EXPERIMENT_ENDED


def _date(at: float) -> str:
    return time.strftime("on %Y-%m-%d at %H:%M", time.localtime(at))
