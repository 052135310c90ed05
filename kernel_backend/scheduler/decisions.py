"""Define the scheduler's decisions: starts, preemptions and reservations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from kernel_backend.model.resources import Placement
from kernel_backend.scheduler.requests import Allocation, Reservation, SlotRequest


@dataclass(frozen=True)
class Start:
    """Decision that the gang of a request starts now, on the slots of `placement`."""

    request: SlotRequest
    placement: Placement
    passed: bool = False  # it uses reserved slots, which may be reclaimed
    reservation: Reservation | None = None  # reservation of the request, which it gets back if its trial is requeued

    @property
    def by_node(self) -> tuple[tuple[str, int], ...]:
        """Return how many slots of each node the gang gets, in the order of ranks."""
        return tuple((share.node, len(share.slots)) for share in self.placement)

    def run(self, at: float) -> Allocation:
        """Return the allocation that the started gang holds from time `at` on."""
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
            elastic=replace(request, failed_at=0.0, rest=0.0) if request.larger else None,
        )


@dataclass(frozen=True)
class Preempt:
    """Decision to preempt a gang: it is requested to commit a checkpoint and release its slots.

    If `change` is `shrink` or `grow`, an elastic gang restarts at once with another number of slots. `kept` is the
    reservation of its minimum number of slots until it has restarted.
    """

    run: Allocation
    reason: str
    change: Literal["exit", "shrink", "grow"] = "exit"
    kept: Reservation | None = None

    @property
    def freed(self) -> int:
        """Return how many slots of the gang become free for other requests.

        A gang that only changes its size keeps its minimum number of slots.
        """
        return self.run.slots if self.change == "exit" else self.run.surplus


@dataclass(frozen=True)
class Decisions:
    """Decisions about one cluster state.

    They are starts and preemptions, each in the order in which they were decided, and all reservations that are in
    force afterwards.
    """

    starts: tuple[Start, ...]
    preempts: tuple[Preempt, ...]
    reservations: tuple[Reservation, ...]
