"""What can be decided: who starts, who steps aside, what is kept for whom."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_backend.model.resources import Placement
from kernel_backend.scheduler.requests import Allocation, Reservation, SlotRequest


@dataclass(frozen=True)
class Start:
    """This ask gets these slots now."""

    ask: SlotRequest
    placement: Placement
    passed: bool = False  # ahead of a reservation, which may have them back
    reservation: Reservation | None = None  # by which it starts; it has it again should it come back

    def run(self, at: float) -> Allocation:
        """The gang that it becomes."""
        ask = self.ask
        ends = None if ask.max_time is None else at + ask.max_time
        return Allocation(
            ask.key,
            self.placement,
            at,
            ask.owner,
            ask.group,
            ask.pool,
            ends=ends,
            passed=self.passed,
            reservation=self.reservation,
        )


@dataclass(frozen=True)
class Preempt:
    """This gang is asked to commit a checkpoint and go."""

    run: Allocation
    reason: str


@dataclass(frozen=True)
class Decisions:
    """What to do, in order; `reservations` is what is kept from now on, the first served first."""

    starts: tuple[Start, ...]
    preempts: tuple[Preempt, ...]
    reservations: tuple[Reservation, ...]
