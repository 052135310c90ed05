"""Usage intervals and reservations: the history that the scheduler needs after a restart."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record
from kernel_backend.model.states import Outcome


class UsageInterval(NamedTuple):
    """An interval in which an attempt holds slots, from `begun` to `ended`; None while it still does."""

    attempt: AttemptId
    owner: str
    group: str
    slots: int
    begun: float
    ended: float | None
    outcome: Outcome | None


class ReservationRecord(Record):
    """Reservation of a request or its gang, stored so that a request keeps its position when the service restarts."""

    experiment: int
    trial: int
    nth: int = 0
    head_since: float | None = None  # when it came to be the first of its line
    kind: str | None = None  # of the devices that are reserved for it
    node: str | None = None  # the one that is reserved for it, if it is only one
    kept_since: float | None = None  # None: nothing is reserved for it
    kept_priority: int | None = None  # by which that was got, where it is known
    passed: bool = False  # its gang was started ahead of one for whom slots were kept
    committed: float | None = None  # when its gang was seen to have a first checkpoint
    leaving: float | None = None  # when its gang was asked to go

    @property
    def key(self) -> tuple[int, int, int]:
        """Return the key of the request with the reservation: experiment, trial and index among its requests."""
        return self.experiment, self.trial, self.nth
