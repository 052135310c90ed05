"""What a scheduler must know of the past: who held slots and for how long, and what was promised to whom."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record
from kernel_backend.model.states import Outcome


class UsageInterval(NamedTuple):
    """An attempt has held its slots from `begun` to `ended`, None while it still does."""

    attempt: AttemptId
    owner: str
    group: str
    slots: int
    begun: float
    ended: float | None
    outcome: Outcome | None


class ReservationRecord(Record):
    """What an ask or its gang has been promised: a service that restarts takes nobody's turn away."""

    experiment: int
    trial: int
    nth: int = 0
    head_since: float | None = None  # when it came to be the first of its line
    kind: str | None = None  # of the devices that are kept for it
    node: str | None = None  # the one that is kept for it, where it is but one
    kept_since: float | None = None  # None: nothing is kept for it
    kept_priority: int | None = None  # by which that was got, where it is known
    passed: bool = False  # its gang was started ahead of one for whom slots were kept
    committed: float | None = None  # when its gang was seen to have a first checkpoint
    leaving: float | None = None  # when its gang was asked to go

    @property
    def key(self) -> tuple[int, int, int]:
        """Whose it is."""
        return self.experiment, self.trial, self.nth
