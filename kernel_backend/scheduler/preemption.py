"""Choose gangs to preempt: the youngest first, no more than needed, and none if that would not free enough slots.

Elastic gangs, whose number of slots may change, come first: they release only the slots beyond their least number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.placement import Capacity
from kernel_backend.scheduler.requests import Allocation, RequestKey, SlotRequest
from kernel_backend.scheduler.reservations import Plan, preemptible_at
from kernel_backend.scheduler.rules import Rules


class Source(NamedTuple):
    """Slots that may be taken from a gang: all of its slots, or those of an elastic gang beyond its least number."""

    run: Allocation
    slots: int

    @property
    def whole(self) -> bool:
        """Return whether the gang loses all of its slots."""
        return self.slots == self.run.slots

    def on(self, excluded: frozenset[str]) -> int:
        """Return how many of the slots that may be taken from the gang can become free outside the nodes `excluded`.

        It is an upper bound: an elastic gang that shrinks may give up its slots on excluded nodes instead.
        """
        return min(self.slots, self.run.on(excluded))

    def on_node(self, name: str) -> int:
        """Return how many of the slots that may be taken from the gang can become free on the node `name`.

        It is an upper bound: an elastic gang that shrinks may give up its slots on other nodes instead.
        """
        return min(self.slots, self.run.by_node[name])


def whole(run: Allocation) -> Source:
    """Return a `Source` with all slots of a gang."""
    return Source(run, run.slots)


def preemptible_now(runs: Iterable[Allocation], rules: Rules, at: float) -> list[Allocation]:
    """Return the gangs that may be preempted now: idle notebook servers first, then the youngest gangs.

    Of equally old gangs, those with the fewest slots come first. A preempted gang commits a checkpoint, so that it
    loses only the time to resume, which does not depend on its age.
    """

    def may(run: Allocation) -> bool:
        when = preemptible_at(run, rules)
        return run.leaving is None and when is not None and when <= at

    return sorted(filter(may, runs), key=_youngest)


def _youngest(run: Allocation) -> tuple[bool, float, int, int, int, RequestKey]:
    return not run.key.server, -run.since, run.slots, -run.key.experiment, -run.key.trial, run.key


def surpluses(candidates: Iterable[Allocation]) -> list[Source]:
    """Return the slots that elastic gangs among `candidates` hold beyond their least numbers."""
    return [Source(run, run.surplus) for run in candidates if run.surplus]


def victims(
    request: SlotRequest,
    capacities: Mapping[str, Capacity],
    nodes: Sequence[Node],
    candidates: Sequence[Source],
    leaving: Sequence[Source],
    before: Sequence[Plan],
) -> list[Source]:
    """Return those `candidates`, in order, that must be preempted to free enough slots for a request.

    Slots that are free or that gangs in `leaving` give up anyway are used first. The list is empty if these suffice, or
    if all candidates together free too few slots. `before` has the plans of requests that are served earlier.
    """
    usable = [node for node in nodes if node.name not in request.excluded]
    choices: list[list[Source] | None] = []
    if request.one_node:
        for node in usable:
            if node.slots >= request.slots:
                kept = sum(each.request.slots for each in before if each.node == node.name)
                free = capacities[node.kind].free.get(node.name, 0)
                held = {each.run.key: each.on_node(node.name) for each in (*candidates, *leaving)}
                choices.append(_least(candidates, leaving, held, request.slots + kept - free))
    else:
        for kind in sorted({node.kind for node in usable}):
            kept = sum(each.request.slots for each in before if each.kind == kind)
            free = capacities[kind].beside(request.excluded, {})
            held = {
                each.run.key: each.on(request.excluded) if each.run.kind == kind else 0
                for each in (*candidates, *leaving)
            }
            choices.append(_least(candidates, leaving, held, request.slots + kept - free))
    found = [chosen for chosen in choices if chosen is not None]
    return min(found, key=lambda chosen: (sum(each.slots for each in chosen), [c.run.key for c in chosen]), default=[])


def _least(
    candidates: Sequence[Source], leaving: Sequence[Source], held: Mapping[RequestKey, int], missing: int
) -> list[Source] | None:
    """Return the first candidates that together free `missing` slots, without those that turn out not to be needed.

    `held` says how many useful slots each candidate would free, and each gang in `leaving`, which gives up slots in any
    case. None if all of them together free too few.
    """
    missing -= sum(held[each.run.key] for each in leaving)
    chosen: list[Source] = []
    for each in candidates:
        if missing <= 0:
            break
        if held[each.run.key]:
            chosen.append(each)
            missing -= held[each.run.key]
    if missing > 0:
        return None
    for each in reversed(chosen):
        if missing + held[each.run.key] <= 0:
            missing += held[each.run.key]
            chosen.remove(each)
    return chosen


def beyond(candidates: Sequence[Allocation], excess: int) -> list[Source]:
    """Choose gangs that must give up slots so that at least `excess` slots become free, the first candidates first.

    Elastic gangs give up only the slots beyond their least number if that suffices.
    """
    chosen: list[Source] = []
    extra = surpluses(candidates)
    enough = sum(each.slots for each in extra) >= excess
    for each in extra if enough else map(whole, candidates):
        if excess <= 0:
            break
        chosen.append(each)
        excess -= each.slots
    return chosen
