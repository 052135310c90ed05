"""Yield requests in scheduling order, computed only as far as the caller reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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


def _fair_order(cluster: ClusterState, pool: str) -> Iterator[SlotRequest]:
    ledger = Ledger(cluster)
    lines = cluster.queue.lines.get(pool, {})
    waiting: dict[QueueKey, Iterator[SlotRequest]] = {}
    heads: dict[QueueKey, SlotRequest | None] = {}
    begun: Counter[tuple[QueueKey, Shape]] = Counter()  # index of the first undecided request of each shape
    served: set[RequestKey] = set()

    def next_of(line: UserQueue) -> SlotRequest | None:
        """Return the first request of a user queue that is not in the order yet; None if all are."""
        requests = waiting.setdefault(line.key, iter(line.requests))
        head = heads.get(line.key) or next(requests, None)
        while head is not None and head.key in served:
            head = next(requests, None)
        heads[line.key] = head
        return head

    def guaranteed_of(line: UserQueue) -> SlotRequest | None:
        """Return the first request of a user queue that is not in the order yet and lies within a guarantee, or None.

        Of several requests of one shape, which fit all or none, only the first is checked.
        """
        firsts = []
        for shape, requests in line.shapes.items():
            nth = begun[line.key, shape]
            while nth < len(requests) and requests[nth].key in served:
                nth += 1
            begun[line.key, shape] = nth
            firsts += [request for request in requests[nth : nth + 1] if ledger.guaranteed(request)]
        return min(firsts, key=lambda request: request.order, default=None)

    def walk(priority: int, guaranteed: bool) -> Iterator[SlotRequest]:
        his = (line for line in lines.values() if line.key.priority == priority)
        fair_order = FairOrder((line for line in his if not guaranteed or ledger.has_guarantee(line)), ledger)
        while (line := fair_order.next()) is not None:
            request = guaranteed_of(line) if guaranteed else next_of(line)
            if request is not None:
                served.add(request.key)
                ledger.give(request)
                yield request
            fair_order.over(again=request is not None)

    priorities = sorted({line.key.priority for line in lines.values()}, reverse=True)
    for priority in priorities:
        if priority >= FIRST:
            yield from walk(priority, False)
    for priority in priorities:
        yield from walk(priority, True)
    for request in reserved_for(cluster, pool):
        if request.key not in served:
            served.add(request.key)
            ledger.give(request)
            yield request
    for priority in priorities:
        yield from walk(priority, False)


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
