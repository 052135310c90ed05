"""Plan reservations: when a request that does not fit will start, and which slots others may use until then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.placement import Capacity, SlotsByNode
from kernel_backend.scheduler.requests import Allocation, Reservation, SlotRequest
from kernel_backend.scheduler.rules import Rules


class SlotRelease(NamedTuple):
    """Expectation that a gang releases `slots` of its slots by the time `at`: all, or a part of an elastic gang's.

    `sure` is False if the gang can only be preempted some time after its first checkpoint, whose time is unknown. Such
    a release helps to predict when a reservation can start, but its slots are not offered to other requests.
    """

    at: float
    run: Allocation
    sure: bool
    slots: int


@dataclass
class Plan:
    """Plan of a request's reservation. `when` is the latest time at which the request can start, None if unknown."""

    request: SlotRequest
    kind: str
    node: str | None  # None: any node of the kind
    when: float | None
    spare: int  # slots on those nodes that the request does not need, even then
    firm: bool  # others may use the slots only if they end before `when`
    missing: int = 0  # number of slots that are not free yet
    since: float = 0.0  # when the reservation was made
    risk: float = 0.0  # remaining probability with which backfilled gangs may delay it

    def held_by(self, run: Allocation) -> int:
        """Return how many slots the gang `run` holds where this plan reserves slots.

        That is one node, or all nodes with one kind of device.
        """
        if self.node is not None:
            return run.by_node[self.node]
        return run.on(self.request.excluded) if run.kind == self.kind else 0

    def overlap(self, kind: str, allocation: SlotsByNode) -> int:
        """Return how many slots of an allocation lie where this plan reserves slots.

        That is a node, or all nodes with one kind of device; `kind` is the kind of the allocation's slots.
        """
        if self.node is not None:
            return sum(count for name, count in allocation if name == self.node)
        if kind != self.kind:
            return 0
        return sum(count for name, count in allocation if name not in self.request.excluded)

    def lets_by(self, request: SlotRequest, at: float) -> bool:
        """Return whether another request may use the reserved slots from time `at` on.

        It may if its time limit ends before the reservation is due. It may also if it can be preempted, unless the plan
        is firm.
        """
        if self.when is not None and request.max_time is not None and at + request.max_time <= self.when:
            return True
        return request.preemptible and not self.firm


def release(run: Allocation, rules: Rules, at: float, taken_back: int) -> SlotRelease | None:
    """Return when a gang will release slots; None if that is unknown.

    If `taken_back` is not 0, that many of its slots are to be reclaimed, and are assumed to be released as soon as the
    rules allow.
    """
    if run.leaving is not None:
        return SlotRelease(max(at, run.leaving + rules.grace), run, True, run.freed)
    known = None if run.ends is None else SlotRelease(max(at, run.ends), run, True, run.slots)
    if not taken_back:
        return known
    asked = preemptible_at(run, rules)
    if asked is None and not run.key.is_gang:
        return known
    when = max(at, at + rules.min_run if asked is None else asked) + rules.grace
    back = SlotRelease(when, run, asked is not None, taken_back)
    return back if known is None or back.at < known.at else known


def preemptible_at(run: Allocation, rules: Rules) -> float | None:
    """Return the time from which a gang may be preempted; None if it never may be, or if the time is not known yet.

    For a gang it is `min_run` seconds after its first checkpoint, for a notebook server the end of its allowed idle
    time. Programs that Daylight has not started are never preempted.
    """
    if run.key.outside:
        return None
    if run.key.server:
        idle = rules.idle_servers
        return None if idle is None or run.last_activity is None else run.last_activity + idle
    return None if run.committed is None else run.committed + rules.min_run


def releases(
    runs: Iterable[Allocation], rules: Rules, at: float, taken_back: Callable[[Allocation], int]
) -> tuple[SlotRelease, ...]:
    """Return when gangs will release slots, as far as that is known, in order of time.

    `taken_back` returns how many slots of a gang are to be reclaimed.
    """
    found = (release(run, rules, at, taken_back(run)) for run in runs)
    return tuple(sorted(filter(None, found), key=lambda each: (each.at, each.run.key)))


def plan(
    request: SlotRequest,
    capacities: dict[str, Capacity],
    nodes: Sequence[Node],
    coming: Sequence[SlotRelease],
    before: Sequence[Plan],
    at: float,
    sticky: Reservation | None = None,
    *,
    firm: bool = False,
    soon: float = 0.0,
    risk: float = 0.0,
) -> Plan | None:
    """Plan a reservation for a request that does not fit now; None if it would not fit even after all gangs have ended.

    The reservation is on a node, or on any nodes with one kind of device: where an earlier one (`sticky`) is if
    possible, else where the request can start first. `coming` has the known slot releases, `before` the plans of
    requests that are served earlier. The plan is firm if `firm` is set, or if the request can start within `soon`
    seconds. `risk` is the probability of a delay that is accepted.
    """
    usable = [node for node in nodes if node.name not in request.excluded]
    if request.one_node:
        found = _on_a_node(request, capacities, usable, coming, before, sticky)
    else:
        found = _anywhere(request, capacities, usable, coming, before, sticky)
    if found is None:
        return None
    kind, node, when, spare, missing = found
    firm = firm or (when is not None and when <= at + soon)
    since = at if sticky is None else sticky.since
    return Plan(request, kind, node, when, max(0, spare), firm, missing, since, risk)


_Found = tuple[str, str | None, float | None, int, int]


def _anywhere(
    request: SlotRequest,
    capacities: dict[str, Capacity],
    nodes: Sequence[Node],
    coming: Sequence[SlotRelease],
    before: Sequence[Plan],
    sticky: Reservation | None,
) -> _Found | None:
    totals: dict[str, int] = {}
    for node in nodes:
        totals[node.kind] = totals.get(node.kind, 0) + node.slots
    kinds = sorted(kind for kind, total in totals.items() if total >= request.slots)
    if sticky is not None and sticky.kind in kinds:
        kinds = [sticky.kind]
    found = []
    for kind in kinds:
        needed = request.slots + sum(each.request.slots for each in before if each.kind == kind)
        counted = [
            (each.at, min(each.slots, each.run.on(request.excluded)), each.sure)
            for each in coming
            if each.run.kind == kind
        ]
        free = capacities[kind].beside(request.excluded, {})
        found.append((kind, None, *_reached(free, needed, counted), needed - free))
    return min(found, key=_soonest, default=None)


def _on_a_node(
    request: SlotRequest,
    capacities: dict[str, Capacity],
    nodes: Sequence[Node],
    coming: Sequence[SlotRelease],
    before: Sequence[Plan],
    sticky: Reservation | None,
) -> _Found | None:
    fitting = [node for node in nodes if node.slots >= request.slots]
    kept = [node for node in fitting if sticky is not None and node.name == sticky.node]
    by_node: dict[str, list[tuple[float, int, bool]]] = {}
    for each in coming:
        for name, count in each.run.by_node.items():
            by_node.setdefault(name, []).append((each.at, min(each.slots, count), each.sure))
    found = []
    for node in kept or fitting:
        needed = request.slots + sum(each.request.slots for each in before if each.node == node.name)
        free = capacities[node.kind].free.get(node.name, 0)
        found.append((node.kind, node.name, *_reached(free, needed, by_node.get(node.name, [])), needed - free))
    return min(found, key=_soonest, default=None)


def _reached(free: int, needed: int, coming: Sequence[tuple[float, int, bool]]) -> tuple[float | None, int]:
    """Return the time at which `needed` slots will be free, and how many slots more than `needed` will be free then.

    The time is 0 if enough of the `free` slots are free now. `coming` has later releases as (time, slots, sure), in
    order of time; those that are not sure do not count as additional slots. If there are too few releases, return None
    and a negative number: minus the number of missing slots.
    """
    if free >= needed:
        return 0.0, free - needed
    unsure = 0
    for at, together in groupby(coming, key=itemgetter(0)):
        for _, count, sure in together:
            free += count
            unsure += 0 if sure else count
        if free >= needed:
            return at, free - unsure - needed
    return None, free - needed


def _soonest(found: _Found) -> tuple[bool, float, int, str, str]:
    kind, node, when, spare, _ = found
    return when is None, when or 0.0, -spare, kind, node or ""
