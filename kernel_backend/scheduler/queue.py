"""Keep the queue: sub-queues per user, group and priority, in order as requests come and go."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from kernel_backend.scheduler.requests import RequestKey, Shape, SlotRequest

_order = attrgetter("order")


class QueueKey(NamedTuple):
    """Key of a user queue."""

    priority: int
    group: str
    owner: str


def _line_key(ask: SlotRequest) -> QueueKey:
    return QueueKey(ask.priority, ask.group, ask.owner)


class UserQueue:
    """Requests of one user in one group with one priority, in order; and by shape, in order within each."""

    def __init__(self, key: QueueKey, asks: list[SlotRequest]) -> None:
        """Begin with these requests, at least one, which are in order."""
        self.key, self.asks = key, asks
        self.shapes: dict[Shape, list[SlotRequest]] = {}
        for ask in asks:
            self.shapes.setdefault(ask.shape, []).append(ask)
        self.since = max(self.first.queued_at, self.first.failed_at)  # when its first request became the first

    def __len__(self) -> int:
        return len(self.asks)

    @property
    def first(self) -> SlotRequest:
        """Return the first request."""
        return self.asks[0]

    def ahead_of(self, ask: SlotRequest, most: int) -> list[SlotRequest]:
        """Return the first `most` of the requests ahead of this one, in order."""
        return self.asks[: min(most, self.before(ask))]

    def add(self, ask: SlotRequest) -> None:
        """Insert a request; a new head counts as the head since it was queued or came back."""
        insort(self.asks, ask, key=_order)
        insort(self.shapes.setdefault(ask.shape, []), ask, key=_order)
        if self.first is ask:
            self.since = max(ask.queued_at, ask.failed_at)

    def remove(self, ask: SlotRequest, at: float) -> bool:
        """Remove a request; return whether any is left."""
        was_first = ask.key == self.first.key
        of_shape = self.shapes[ask.shape]
        for asks in (self.asks, of_shape):
            del asks[bisect_left(asks, ask.order, key=_order)]
        if not of_shape:
            del self.shapes[ask.shape]
        if self.asks and was_first:
            self.since = max(at, self.first.queued_at)
        return bool(self.asks)

    def before(self, ask: SlotRequest) -> int:
        """Return how many of its requests come before this one."""
        return bisect_left(self.asks, ask.order, key=_order)


class Queue:
    """Requests by pool and user queue.

    Those in backoff or preparation are in no user queue, so that they block no others.
    """

    def __init__(self) -> None:
        self.asks: dict[RequestKey, SlotRequest] = {}
        self.lines: dict[str, dict[QueueKey, UserQueue]] = {}
        self._wakes: list[tuple[float, RequestKey]] = []

    def __iter__(self) -> Iterator[SlotRequest]:
        return iter(self.asks.values())

    def line(self, ask: SlotRequest) -> UserQueue | None:
        """Return the queue of this request's user; None where there is none."""
        return self.lines.get(ask.pool, {}).get(_line_key(ask))

    def stands(self, ask: SlotRequest) -> bool:
        """Return whether the request is eligible to start now."""
        line = self.line(ask)
        asks = line.shapes.get(ask.shape, []) if line else []
        nth = bisect_left(asks, ask.order, key=_order)
        return nth < len(asks) and asks[nth].key == ask.key

    def starves(self, ask: SlotRequest, since: float) -> bool:
        """Return whether it has been the head of its user queue since `since` or longer."""
        line = self.line(ask)
        return line is not None and line.first.key == ask.key and line.since <= since

    def add(self, ask: SlotRequest, at: float) -> None:
        """Add a new or changed request; a head that stays the head keeps its time as such."""
        since: float | None = None
        if ask.key in self.asks:
            before = self.line(self.asks[ask.key])
            since = before.since if before is not None and before.first.key == ask.key else None
            self.remove(ask.key, at)
        if not self._take_in(ask, at):
            return
        key = _line_key(ask)
        lines = self.lines.setdefault(ask.pool, {})
        line = lines.get(key)
        if line is None:
            lines[key] = line = UserQueue(key, [ask])
        else:
            line.add(ask)
        if since is not None and line.first.key == ask.key:
            line.since = since

    def fill(self, asks: Iterable[SlotRequest], at: float) -> None:
        """Fill an empty queue with many requests at once: they are sorted once, instead of a search for each."""
        lines: defaultdict[str, defaultdict[QueueKey, list[SlotRequest]]] = defaultdict(lambda: defaultdict(list))
        for ask in sorted(asks, key=_order):
            if self._take_in(ask, at):
                lines[ask.pool][_line_key(ask)].append(ask)
        for pool, of_pool in lines.items():
            self.lines[pool] = {key: UserQueue(key, theirs) for key, theirs in of_pool.items()}

    def _take_in(self, ask: SlotRequest, at: float) -> bool:
        """Record a request; return whether it belongs in a user queue now."""
        self.asks[ask.key] = ask
        if ask.preparing:
            return False
        if ask.rests(at):
            heapq.heappush(self._wakes, (ask.failed_at + ask.rest, ask.key))
            return False
        return True

    def remove(self, key: RequestKey, at: float) -> SlotRequest | None:
        """Remove and return a request; None where there was none."""
        ask = self.asks.pop(key, None)
        line = self.line(ask) if ask is not None else None
        if ask is not None and line is not None and self.stands(ask) and not line.remove(ask, at):
            del self.lines[ask.pool][line.key]
        return ask

    def wake(self, at: float) -> None:
        """Make those requests eligible whose backoff has ended by then."""
        while self._wakes and self._wakes[0][0] <= at:
            _, key = heapq.heappop(self._wakes)
            ask = self.asks.get(key)
            if ask is not None and not ask.preparing and not self.stands(ask):
                self.add(ask, at)
