"""What is kept free for an ask that is next and does not fit: when it fits at the latest, and what others may use."""

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
    """A gang that gives its slots back, at the latest at `at`.

    Not `sure`: it goes some time after its first checkpoint, which may come at any moment. The reservation is taken to
    be due by then, so that nobody counts on more time; and nobody counts on what that gang would leave to spare.
    """

    at: float
    run: Allocation
    sure: bool


@dataclass
class Plan:
    """What a decision keeps for one ask: `when` it fits at the latest, None where nobody can say."""

    ask: SlotRequest
    kind: str
    node: str | None  # where there is but one that it waits for
    when: float | None
    spare: int  # slots of that region which it leaves to others even then
    firm: bool  # nobody passes it but who is gone by then
    missing: int = 0  # how many slots it waits for
    since: float = 0.0  # when something was kept for it first
    risk: float = 0.0  # how likely more who pass it by a forecast may make it late

    def held_by(self, run: Allocation) -> int:
        """Return how many of the slots that it waits for a gang holds."""
        if self.node is not None:
            return run.by_node[self.node]
        return run.on(self.ask.excluded) if run.kind == self.kind else 0

    def overlap(self, kind: str, allocation: SlotsByNode) -> int:
        """How many of these slots it may want itself."""
        if self.node is not None:
            return sum(count for name, count in allocation if name == self.node)
        if kind != self.kind:
            return 0
        return sum(count for name, count in allocation if name not in self.ask.excluded)

    def lets_by(self, ask: SlotRequest, at: float) -> bool:
        """Whether it is not delayed, whatever slots this ask gets: it has ended by then, or goes when it must."""
        if self.when is not None and ask.max_time is not None and at + ask.max_time <= self.when:
            return True
        return ask.preemptible and not self.firm


def release(run: Allocation, rules: Rules, at: float, taken_back: bool) -> SlotRelease | None:
    """When a gang gives its slots back; None: nobody can say. `taken_back`: it is asked to as soon as it may be."""
    if run.leaving is not None:
        return SlotRelease(max(at, run.leaving + rules.grace), run, True)
    known = None if run.ends is None else SlotRelease(max(at, run.ends), run, True)
    if not taken_back:
        return known
    asked = preemptible_at(run, rules)
    if asked is None and run.key.server:
        return known
    back = SlotRelease(max(at, at + rules.min_run if asked is None else asked) + rules.grace, run, asked is not None)
    return back if known is None or back.at < known.at else known


def preemptible_at(run: Allocation, rules: Rules) -> float | None:
    """When it may be put aside: a while after its first checkpoint, a notebook server by its rule; None: not yet."""
    if run.key.server:
        idle = rules.idle_servers
        return None if idle is None or run.last_activity is None else run.last_activity + idle
    return None if run.committed is None else run.committed + rules.min_run


def releases(
    runs: Iterable[Allocation], rules: Rules, at: float, taken_back: Callable[[Allocation], bool]
) -> tuple[SlotRelease, ...]:
    """The gangs whose end is known, the first to end first."""
    found = (release(run, rules, at, taken_back(run)) for run in runs)
    return tuple(sorted(filter(None, found), key=lambda each: (each.at, each.run.key)))


def plan(
    ask: SlotRequest,
    rooms: dict[str, Capacity],
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
    """What is kept for `ask`, on the node or the kind that was kept before where that is still there.

    `coming` are the gangs whose end is known, `before` what is kept for those who come first. None: no such gang fits.
    """
    usable = [node for node in nodes if node.name not in ask.excluded]
    if ask.one_node:
        found = _on_a_node(ask, rooms, usable, coming, before, sticky)
    else:
        found = _anywhere(ask, rooms, usable, coming, before, sticky)
    if found is None:
        return None
    kind, node, when, spare, missing = found
    firm = firm or (when is not None and when <= at + soon)
    since = at if sticky is None else sticky.since
    return Plan(ask, kind, node, when, max(0, spare), firm, missing, since, risk)


_Found = tuple[str, str | None, float | None, int, int]


def _anywhere(
    ask: SlotRequest,
    rooms: dict[str, Capacity],
    nodes: Sequence[Node],
    coming: Sequence[SlotRelease],
    before: Sequence[Plan],
    sticky: Reservation | None,
) -> _Found | None:
    totals: dict[str, int] = {}
    for node in nodes:
        totals[node.kind] = totals.get(node.kind, 0) + node.slots
    kinds = sorted(kind for kind, total in totals.items() if total >= ask.slots)
    if sticky is not None and sticky.kind in kinds:
        kinds = [sticky.kind]
    found = []
    for kind in kinds:
        needed = ask.slots + sum(each.ask.slots for each in before if each.kind == kind)
        counted = [(each.at, each.run.on(ask.excluded), each.sure) for each in coming if each.run.kind == kind]
        free = rooms[kind].beside(ask.excluded, {})
        found.append((kind, None, *_reached(free, needed, counted), needed - free))
    return min(found, key=_soonest, default=None)


def _on_a_node(
    ask: SlotRequest,
    rooms: dict[str, Capacity],
    nodes: Sequence[Node],
    coming: Sequence[SlotRelease],
    before: Sequence[Plan],
    sticky: Reservation | None,
) -> _Found | None:
    fitting = [node for node in nodes if node.slots >= ask.slots]
    kept = [node for node in fitting if sticky is not None and node.name == sticky.node]
    by_node: dict[str, list[tuple[float, int, bool]]] = {}
    for each in coming:
        for name, count in each.run.by_node.items():
            by_node.setdefault(name, []).append((each.at, count, each.sure))
    found = []
    for node in kept or fitting:
        needed = ask.slots + sum(each.ask.slots for each in before if each.node == node.name)
        free = rooms[node.kind].free.get(node.name, 0)
        found.append((node.kind, node.name, *_reached(free, needed, by_node.get(node.name, [])), needed - free))
    return min(found, key=_soonest, default=None)


def _reached(free: int, needed: int, coming: Sequence[tuple[float, int, bool]]) -> tuple[float | None, int]:
    """When so many are free, and how many more; (None, how many are missing, below 0) where nobody can say.

    `coming`: when, how many, and whether that is sure.
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
