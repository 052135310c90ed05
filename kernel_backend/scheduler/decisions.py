"""Define the scheduler's decisions: starts, preemptions and reservations."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_backend.model.resources import Placement
from kernel_backend.scheduler.requests import Allocation, Reservation, SlotRequest


@dataclass(frozen=True)
class Start:
    """Grant these slots to a request now."""

    request: SlotRequest
    placement: Placement
    passed: bool = False  # ahead of a reservation, which may reclaim the slots
    reservation: Reservation | None = None  # by which it starts; it gets it again should it come back

    def run(self, at: float) -> Allocation:
        """Return the allocation of the started gang, granted at `at`."""
        request = self.request
        ends = None if request.max_time is None else at + request.max_time
        return Allocation(
            request.key,
            self.placement,
            at,
            request.owner,
            request.group,
            request.pool,
            ends=ends,
            passed=self.passed,
            reservation=self.reservation,
        )


@dataclass(frozen=True)
class Preempt:
    """Preempt a gang: request it to commit a checkpoint and release its slots."""

    run: Allocation
    reason: str


@dataclass(frozen=True)
class Decisions:
    """Result of scheduling one cluster state: starts and preemptions in order, and the reservations from now on."""

    starts: tuple[Start, ...]
    preempts: tuple[Preempt, ...]
    reservations: tuple[Reservation, ...]
