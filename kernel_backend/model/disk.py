"""Define disk usage of experiments, and decide when records expire and deleted experiments are purged."""

from __future__ import annotations

import time
from typing import Annotated, Any

from pydantic import Field

from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model.experiment import Experiment, parse_duration
from kernel_backend.model.record import Record
from kernel_backend.model.states import EXPERIMENT_ENDED

LEAST_FREE = 0.1  # fraction of a file system below which users are warned
DAY_S = 86400.0
UNDO_S = DAY_S  # for which a deleted experiment can be restored
LEAST_AGE_S = 3600.0  # shortest retention of logs and reports after an end: the last records may still arrive

Bytes = Annotated[int, Field(ge=0)]


class DiskUsage(Record):
    """Disk usage of an experiment in bytes, and how many of them its deletion does not free, since they are needed."""

    experiment: int
    name: str
    owner: str
    bytes: dict[str, int]  # by folder in the service's home: checkpoints, artifacts, attempts, snapshots, ...
    stays: int = 0  # bytes that a deletion does not free
    needed: tuple[str, ...] = ()  # the reasons, one sentence each

    @property
    def total(self) -> int:
        """Return the bytes in all of the experiment's folders."""
        return sum(self.bytes.values())

    @property
    def frees(self) -> int:
        """Return how many bytes deleting the experiment frees."""
        return self.total - self.stays


def nearly_full(free: int, size: int) -> str:
    """Return a warning if less than a tenth of a file system is free, else ""; `free` and `size` are in bytes."""
    if free >= size * LEAST_FREE:
        return ""
    return f"the disk is nearly full, {free / max(size, 1):.0%} is free: daylight delete and daylight gc make room"


class WorkspaceUsage(Record):
    """Disk usage in bytes of a workspace, the folder with all files of one owner's trainings.

    `free` and `size` are those of its file system.
    """

    experiments: dict[int, dict[str, Bytes]]  # by number and folder
    environments: Bytes
    free: Bytes
    size: Bytes


class UserDisk(Record):
    """Disk usage of all experiments of a user, in bytes."""

    name: str
    bytes: dict[str, int]  # by folder

    @property
    def total(self) -> int:
        """Return the bytes in all folders of the user's experiments."""
        return sum(self.bytes.values())


class DiskReport(Record):
    """Disk usage by user, by experiment (the largest first), and of files that experiments share."""

    users: tuple[UserDisk, ...]
    experiments: tuple[DiskUsage, ...]  # without files that other experiments need
    shared: dict[str, int]  # environments; for admins also snapshots, database, and folders of unknown experiments
    free: int | None = None  # bytes free on the fullest file system; None if unknown
    size: int | None = None
    warnings: tuple[str, ...] = ()


def parse_age(text: str) -> float:
    """Parse `90d` or `12h` into seconds; raises InvalidRequest for other texts, and for less than an hour."""
    days = text.strip().removesuffix("d")
    seconds = int(days) * DAY_S if days != text.strip() and days.isdecimal() else parse_duration(text)
    if seconds < LEAST_AGE_S:
        raise InvalidRequest(f"{text!r} is too short: write an hour or more, as 12h or 90d")
    return seconds


def expired(experiment: Experiment, now: float, keep_s: float | None) -> bool:
    """Return whether an experiment ended more than `keep_s` seconds before `now`; False if `keep_s` is None."""
    if keep_s is None or experiment.state not in EXPERIMENT_ENDED or experiment.ended_at is None:
        return False
    return experiment.ended_at + keep_s < now


def delete(before: Experiment, now: float) -> dict[str, Any]:
    """Return the field changes that delete an experiment at time `now`; raises Conflict unless it has ended.

    Returns an empty dictionary if the experiment is deleted already.
    """
    if before.state not in EXPERIMENT_ENDED:
        number = before.number
        raise Conflict(
            f"experiment #{number} has not ended: only an ended one can be deleted; end it with daylight stop {number}"
        )
    return {} if before.deleted_at is not None else {"deleted_at": now}


def undelete(before: Experiment, now: float) -> dict[str, Any]:
    """Return the field changes that restore a deleted experiment; raises Conflict a day after its deletion.

    Returns an empty dictionary if the experiment is not deleted.
    """
    if before.deleted_at is None:
        return {}
    if may_purge(before, now):
        raise Conflict(
            f"experiment #{before.number} was deleted {_date(before.deleted_at)}, more than a day ago: "
            "it cannot be brought back any more"
        )
    return {"deleted_at": None}


def may_purge(experiment: Experiment, now: float) -> bool:
    """Return whether an experiment was deleted more than a day ago, so that its files may be removed."""
    deleted = experiment.deleted_at is not None and experiment.deleted_at + UNDO_S < now
    return deleted and experiment.state in EXPERIMENT_ENDED


def _date(at: float) -> str:
    return time.strftime("on %Y-%m-%d at %H:%M", time.localtime(at))
