"""Order the requests of a pool: by class, and within a class by priority and fair share; find who has a reservation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from enum import Enum, auto

from kernel_backend.model.experiment import FIRST
from kernel_backend.scheduler.fair_share import FairOrder
from kernel_backend.scheduler.queue import QueueKey, UserQueue
from kernel_backend.scheduler.quotas import Ledger
from kernel_backend.scheduler.requests import RequestKey, Shape, SlotRequest
from kernel_backend.scheduler.state import ClusterState

MOST_AHEAD = 32  # requests of a user queue that may come before one with a reservation


def in_order(cluster: ClusterState, pool: str) -> Iterator[SlotRequest]:
    """Yield the schedulable requests of a pool in the order in which they would be served if each got its slots.

    Requests that can never start are left out: they block no others.
    """
    ledger = Ledger(cluster)
    for request in _fair_order(cluster, pool):
        if request.slots <= cluster.largest_gang(pool, request.one_node, request.excluded) and not ledger.never(
            request
        ):
            yield request


class RequestClass(Enum):
    """Classes of requests, in the order in which `decide` serves them."""

    FIRST = auto()  # moved ahead of everything else by an admin
    GUARANTEED = auto()  # covered by a guarantee of their user or group
    RESERVED = auto()  # see `reserved_for`
    OTHER = auto()


class PoolQueue:
    """User queues of a pool, and the requests in them that have not been served; `served` grows meanwhile."""

    def __init__(self, cluster: ClusterState, pool: str, served: Set[RequestKey]) -> None:
        self._served = served
        self._begun: Counter[tuple[QueueKey, Shape]] = Counter()  # index of the first unserved request of each shape
        by_priority: dict[int, list[UserQueue]] = {}
        for key, line in cluster.queue.lines.get(pool, {}).items():
            by_priority.setdefault(key.priority, []).append(line)
        self._lines = [by_priority[priority] for priority in sorted(by_priority, reverse=True)]

    def lines(self, of: RequestClass, ledger: Ledger) -> Iterator[list[UserQueue]]:
        """Yield the user queues that may have requests of a class, by priority, the highest priority first."""
        for lines in self._lines:
            if of is RequestClass.GUARANTEED:
                yield list(filter(ledger.has_guarantee, lines))
            elif of is not RequestClass.FIRST or lines[0].key.priority >= FIRST:
                yield lines

    def heads(self) -> Iterator[SlotRequest]:
        """Yield the requests of `next_of_each_shape` of all user queues."""
        return (request for lines in self._lines for line in lines for request in self.next_of_each_shape(line))

    def next_of_each_shape(self, line: UserQueue) -> list[SlotRequest]:
        """Return the first request of a user queue that is not served yet, for each shape, in queue order.

        Requests of one shape have the same size and constraints, so that all of them fit or none does.
        """
        firsts = []
        for shape, requests in line.shapes.items():
            nth = self._begun[line.key, shape]
            while nth < len(requests) and requests[nth].key in self._served:
                nth += 1
            self._begun[line.key, shape] = nth
            firsts += requests[nth : nth + 1]
        return sorted(firsts, key=lambda request: request.order)


def _fair_order(cluster: ClusterState, pool: str) -> Iterator[SlotRequest]:
    ledger, served = Ledger(cluster), set[RequestKey]()
    waiting = PoolQueue(cluster, pool, served)

    def requests_of(each: RequestClass) -> Iterator[SlotRequest]:
        if each is RequestClass.RESERVED:
            yield from (request for request in reserved_for(cluster, pool) if request.key not in served)
            return
        for lines in waiting.lines(each, ledger):
            fair_order = FairOrder(lines, ledger)
            while (line := fair_order.next()) is not None:
                unserved = waiting.next_of_each_shape(line)
                if each is RequestClass.GUARANTEED:
                    unserved = list(filter(ledger.guaranteed, unserved))
                yield from unserved[:1]
                fair_order.over(again=bool(unserved))

    for each in RequestClass:
        for request in requests_of(each):
            served.add(request.key)
            ledger.give(request)
            yield request


def reserved_for(cluster: ClusterState, pool: str) -> list[SlotRequest]:
    """Return the requests with a reservation, then those that have been first in their user queue for too long.

    A user queue has the requests of one user, group and priority. Its first request is included if it has been first
    for `starving` seconds, the longest first. Requests that were requeued ahead of a reserved request in its user queue
    come before it.
    """
    queue = cluster.queue
    found: dict[RequestKey, SlotRequest] = {}
    for _, request in cluster.reserved():
        here = request.within(pool)
        line = queue.line(here) if here is not None and queue.stands(here) else None
        if here is not None and line is not None:
            found |= {each.key: each for each in (*line.ahead_of(here, MOST_AHEAD), here)}
    since = cluster.at - cluster.rules.starving
    lines = queue.lines.get(pool, {}).values()
    starving = sorted((line.since, line.first.order, line.first) for line in lines if line.since <= since)
    return list((found | {request.key: request for _, _, request in starving if request.key not in found}).values())
