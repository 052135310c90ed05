"""Find free slots for a request, including reserved slots that it can use without delaying a reservation (backfill)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.scheduler.placement import Capacity, SlotsByNode
from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.reservations import Plan


class Fit(NamedTuple):
    """Free slots of one kind of device on which a request can start.

    `passed` is True if some of these slots are reserved for another request, which may preempt the gang to get them.
    """

    kind: str
    allocation: SlotsByNode
    passed: bool


def _certain(_: Plan) -> float:
    return 1.0


def fit(
    request: SlotRequest,
    capacities: Mapping[str, Capacity],
    plans: Sequence[Plan],
    at: float,
    chance: Callable[[Plan], float] = _certain,
) -> Fit | None:
    """Return free slots on which a request can start at time `at`; None if there are too few.

    `capacities` has the free slots by kind of device, `plans` the reservations of other requests.
    Slots that are not reserved are preferred, then reserved slots that can be used without delaying their reservation.
    `chance` returns the probability that the request would delay a planned reservation. If the request gets reserved
    slots, that probability is subtracted from the plan's `risk` (the probability of a delay that is still accepted).
    Slots of a plan with too little `risk` left are not used.
    """
    found = _beside(request, capacities, plans)
    if found is not None:
        return Fit(*found, passed=False)
    risks = [0.0 if each.lets_by(request, at) else chance(each) for each in plans]
    binding = [each for each, risk in zip(plans, risks, strict=True) if risk > max(0.0, each.risk)]
    if len(binding) == len(plans):
        return None
    found = _beside(request, capacities, binding)
    if found is None:
        return None
    for each, risk in zip(plans, risks, strict=True):
        if each not in binding and each.overlap(*found):
            each.risk -= risk
    timely = [each for each in plans if each.when is not None and at + (request.max_time or float("inf")) <= each.when]
    over = (each for each in plans if each not in binding and each not in timely)
    return Fit(*found, passed=request.preemptible and any(each.overlap(*found) for each in over))


def _beside(
    request: SlotRequest, capacities: Mapping[str, Capacity], plans: Sequence[Plan]
) -> tuple[str, SlotsByNode] | None:
    spare = {each.node: each.spare for each in plans if each.node is not None}
    for kind in sorted(capacities):
        allocation = capacities[kind].place(request.slots, request.one_node, request.excluded, spare)
        if allocation is None:
            continue
        if all(each.overlap(kind, allocation) <= each.spare for each in plans):
            for each in plans:
                each.spare -= each.overlap(kind, allocation)
            return kind, allocation
    return None
