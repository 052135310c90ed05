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
    """Return a policy that starts requests in the order of `key`, without limits, guarantees or preemption.

    If too few slots are free for a request, a `strict` policy starts none behind it; otherwise the next is tried.
    """

    def policy(cluster: ClusterState) -> Decisions:
        nodes = cluster.usable("local")
        if not any(cluster.free.values()):
            return NOTHING
        capacity, taken = (
            Capacity((node.name, len(cluster.free[node.name])) for node in nodes),
            dict.fromkeys(cluster.free, 0),
        )
        starts = []
        for request in sorted(cluster.queue, key=lambda request: key(cluster, request)):
            if not capacity.total:
                break
            allocation = capacity.place(request.slots, request.one_node, request.excluded)
            if allocation is not None:
                capacity.take(allocation)
                starts.append(Start(request, _placed(cluster, allocation, taken)))
            elif strict:
                break
        return Decisions(tuple(starts), (), ())

    return policy


def _placed(cluster: ClusterState, allocation: SlotsByNode, taken: dict[str, int]) -> Placement:
    shares = []
    for name, count in allocation:
        node, begun = cluster.nodes[name], taken[name]
        taken[name] += count
        slots = tuple(cluster.free[name][begun : begun + count])
        shares.append(Share(node=name, kind=node.kind, address=node.address, slots=slots))
    return tuple(shares)


class FairShareOfJobs:
    """Share the slots equally among jobs, by time slices: the job that has held slots for the least time goes first.

    The user of a job does not matter: ten jobs of one user get ten shares. Jobs that have run for `quantum` seconds
    free their slots for jobs that ran for less.
    """

    def __init__(self, quantum: float = 1800.0) -> None:
        self._quantum = quantum
        self._used: Counter[RequestKey] = Counter()  # slot-seconds
        self._at = self._looked = 0.0

    def __call__(self, cluster: ClusterState) -> Decisions:
        for run in cluster.runs.values():
            self._used[run.key] += int(run.slots * (cluster.at - max(self._at, run.since)))
        self._at = cluster.at
        fitting = in_line(lambda cluster, request: (self._used[request.key], request.order), strict=False)(cluster)
        started = {start.request.key for start in fitting.starts}
        wanting = [request for request in cluster.queue if request.key not in started]
        if (
            not wanting
            or self._at < self._looked + LOOK_S
            or any(run.leaving is not None for run in cluster.runs.values())
        ):
            return fitting
        self._looked = self._at
        least = min(wanting, key=lambda request: (self._used[request.key], request.order))
        over = [
            run
            for run in preemptible_now(cluster.runs.values(), cluster.rules, cluster.at)
            if run.since + self._quantum <= cluster.at and self._used[run.key] > self._used[least.key]
        ]
        free = sum(map(len, cluster.free.values())) - sum(start.request.slots for start in fitting.starts)
        going = beyond(sorted(over, key=lambda run: -self._used[run.key]), least.slots - free)
        return Decisions(fitting.starts, tuple(Preempt(each.run, "its time slice is over") for each in going), ())


POLICIES: dict[str, Callable[[], Callable[[ClusterState], Decisions]]] = {
    "first come, first served": lambda: in_line(lambda cluster, request: request.order, strict=True),
    "first that fits": lambda: in_line(lambda cluster, request: request.order, strict=False),
    "plain priority": lambda: in_line(lambda cluster, request: (-request.priority, request.order), strict=True),
    "a fair share for each job": FairShareOfJobs,
}
