"""Define usage intervals and stored reservations, from which a restarted scheduler continues."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record
from kernel_backend.model.states import Outcome


class UsageInterval(NamedTuple):
    """Interval in which an attempt held slots, from `begun` to `ended` in seconds since the epoch.

    `ended` is None while the attempt still holds them.
    """

    attempt: AttemptId
    owner: str
    group: str
    slots: int
    begun: float
    ended: float | None
    outcome: Outcome | None


class ReservationRecord(Record):
    """Stored reservation and queue position of a slot request, or of the gang that it started.

    It survives a restart of the service.
    """

    experiment: int
    trial: int
    nth: int = 0
    head_since: float | None = None  # when it became the first of its user queue
    kind: str | None = None  # kind of the devices that are reserved
    node: str | None = None  # the node, if the reservation is for a single one
    kept_since: float | None = None  # since when it has a reservation; None: it has none
    kept_priority: int | None = None  # priority with which it got the reservation; None if unknown
    passed: bool = False  # its gang was started ahead of a request that has a reservation
    committed: float | None = None  # when its gang committed its first checkpoint
    leaving: float | None = None  # when its gang was asked to exit

    @property
    def key(self) -> tuple[int, int, int]:
        """Return the request's key: experiment, trial, and index among the requests of the experiment."""
        return self.experiment, self.trial, self.nth
