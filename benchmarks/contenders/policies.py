"""Ways to share a cluster that others use: first come first served, plain priority, and a fair share for each job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kernel_backend.model.resources import Placement, Share
from kernel_backend.scheduler.decisions import Decisions, Preempt, Start
from kernel_backend.scheduler.placement import Capacity, SlotsByNode
from kernel_backend.scheduler.preemption import beyond, preemptible_now
from kernel_backend.scheduler.requests import RequestKey, SlotRequest
from kernel_backend.scheduler.state import ClusterState

LOOK_S = 60.0  # how often time slices are looked at
NOTHING = Decisions((), (), ())


def in_line(key: Callable[[ClusterState, SlotRequest], Any], strict: bool) -> Callable[[ClusterState], Decisions]:
    """Start asks in the order of `key`; `strict` stops at the first that does not fit, the others go on with the next.

    No limits, guarantees, reservations or preemption.
    """

    def policy(picture: ClusterState) -> Decisions:
        nodes = picture.usable("local")
        if not any(picture.free.values()):
            return NOTHING
        room, taken = (
            Capacity((node.name, len(picture.free[node.name])) for node in nodes),
            dict.fromkeys(picture.free, 0),
        )
        starts = []
        for ask in sorted(picture.queue, key=lambda ask: key(picture, ask)):
            if not room.total:
                break
            allocation = room.place(ask.slots, ask.one_node, ask.excluded)
            if allocation is not None:
                room.take(allocation)
                starts.append(Start(ask, _placed(picture, allocation, taken)))
            elif strict:
                break
        return Decisions(tuple(starts), (), ())

    return policy


def _placed(picture: ClusterState, allocation: SlotsByNode, taken: dict[str, int]) -> Placement:
    shares = []
    for name, count in allocation:
        node, begun = picture.nodes[name], taken[name]
        taken[name] += count
        slots = tuple(picture.free[name][begun : begun + count])
        shares.append(Share(node=name, kind=node.kind, address=node.address, slots=slots))
    return tuple(shares)


class FairShareOfJobs:
    """A time slice for each job: who has held least goes first, whoever's it is; ten jobs get ten shares.

    Those that have had `quantum` seconds step aside for jobs that had less.
    """

    def __init__(self, quantum: float = 1800.0) -> None:
        self._quantum = quantum
        self._used: Counter[RequestKey] = Counter()  # slot-seconds
        self._at = self._looked = 0.0

    def __call__(self, picture: ClusterState) -> Decisions:
        for run in picture.runs.values():
            self._used[run.key] += int(run.slots * (picture.at - max(self._at, run.since)))
        self._at = picture.at
        fitting = in_line(lambda picture, ask: (self._used[ask.key], ask.order), strict=False)(picture)
        started = {start.ask.key for start in fitting.starts}
        wanting = [ask for ask in picture.queue if ask.key not in started]
        if (
            not wanting
            or self._at < self._looked + LOOK_S
            or any(run.leaving is not None for run in picture.runs.values())
        ):
            return fitting
        self._looked = self._at
        least = min(wanting, key=lambda ask: (self._used[ask.key], ask.order))
        over = [
            run
            for run in preemptible_now(picture.runs.values(), picture.rules, picture.at)
            if run.since + self._quantum <= picture.at and self._used[run.key] > self._used[least.key]
        ]
        free = sum(map(len, picture.free.values())) - sum(start.ask.slots for start in fitting.starts)
        going = beyond(sorted(over, key=lambda run: -self._used[run.key]), least.slots - free)
        return Decisions(fitting.starts, tuple(Preempt(run, "its time slice is over") for run in going), ())


POLICIES: dict[str, Callable[[], Callable[[ClusterState], Decisions]]] = {
    "first come, first served": lambda: in_line(lambda picture, ask: ask.order, strict=True),
    "first that fits": lambda: in_line(lambda picture, ask: ask.order, strict=False),
    "plain priority": lambda: in_line(lambda picture, ask: (-ask.priority, ask.order), strict=True),
    "a fair share for each job": FairShareOfJobs,
}
