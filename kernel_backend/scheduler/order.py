"""Iterate over requests in scheduling order, lazily: only as far as a caller reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kernel_backend.model.experiment import FIRST
from kernel_backend.scheduler.fair_share import FairOrder
from kernel_backend.scheduler.queue import QueueKey, UserQueue
from kernel_backend.scheduler.quotas import Ledger
from kernel_backend.scheduler.requests import RequestKey, Shape, SlotRequest
from kernel_backend.scheduler.state import ClusterState

MOST_AHEAD = 32  # requests of a user queue that are considered ahead of one with a reservation


def in_order(picture: ClusterState, pool: str) -> Iterator[SlotRequest]:
    """Yield the eligible requests of a pool, the next one first, as if each got its slots.

    Those that can never be met are left out: they block no others.
    """
    ledger = Ledger(picture)
    for ask in _turns(picture, pool):
        if ask.slots <= picture.largest_gang(pool, ask.one_node, ask.excluded) and not ledger.never(ask):
            yield ask


def _turns(picture: ClusterState, pool: str) -> Iterator[SlotRequest]:
    ledger = Ledger(picture)
    lines = picture.queue.lines.get(pool, {})
    waiting: dict[QueueKey, Iterator[SlotRequest]] = {}
    heads: dict[QueueKey, SlotRequest | None] = {}
    begun: Counter[tuple[QueueKey, Shape]] = Counter()  # how many of these are served, from the first on
    served: set[RequestKey] = set()

    def next_of(line: UserQueue) -> SlotRequest | None:
        """Return the first unserved request of a queue; no queue is read farther than that."""
        asks = waiting.setdefault(line.key, iter(line.asks))
        head = heads.get(line.key) or next(asks, None)
        while head is not None and head.key in served:
            head = next(asks, None)
        heads[line.key] = head
        return head

    def guaranteed_of(line: UserQueue) -> SlotRequest | None:
        """Return the first one within a guarantee: of one shape either the first is, or none."""
        firsts = []
        for shape, asks in line.shapes.items():
            nth = begun[line.key, shape]
            while nth < len(asks) and asks[nth].key in served:
                nth += 1
            begun[line.key, shape] = nth
            firsts += [ask for ask in asks[nth : nth + 1] if ledger.guaranteed(ask)]
        return min(firsts, key=lambda ask: ask.order, default=None)

    def walk(priority: int, guaranteed: bool) -> Iterator[SlotRequest]:
        his = (line for line in lines.values() if line.key.priority == priority)
        turns = FairOrder((line for line in his if not guaranteed or ledger.has_guarantee(line)), ledger)
        while (line := turns.next()) is not None:
            ask = guaranteed_of(line) if guaranteed else next_of(line)
            if ask is not None:
                served.add(ask.key)
                ledger.give(ask)
                yield ask
            turns.over(again=ask is not None)

    priorities = sorted({line.key.priority for line in lines.values()}, reverse=True)
    for priority in priorities:
        if priority >= FIRST:
            yield from walk(priority, False)
    for priority in priorities:
        yield from walk(priority, True)
    for ask in reserved_for(picture, pool):
        if ask.key not in served:
            served.add(ask.key)
            ledger.give(ask)
            yield ask
    for priority in priorities:
        yield from walk(priority, False)


def reserved_for(picture: ClusterState, pool: str) -> list[SlotRequest]:
    """Return the requests with a reservation, then the first of starving queues, the longest first.

    No request passes its own user queue by a reservation: one that has returned to a position ahead of it goes first.
    """
    queue = picture.queue
    found: dict[RequestKey, SlotRequest] = {}
    for _, ask in picture.reserved():
        line = queue.line(ask) if ask.pool == pool and queue.stands(ask) else None
        if line is not None:
            found |= {each.key: each for each in (*line.ahead_of(ask, MOST_AHEAD), ask)}
    since = picture.at - picture.rules.starving
    lines = queue.lines.get(pool, {}).values()
    starving = sorted((line.since, line.first.order, line.first) for line in lines if line.since <= since)
    return list((found | {ask.key: ask for _, _, ask in starving if ask.key not in found}).values())
