"""The queue: lines of one user's asks of one priority, kept in order as asks come and go."""

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
    """Whose line it is."""

    priority: int
    group: str
    owner: str


def _line_key(ask: SlotRequest) -> QueueKey:
    return QueueKey(ask.priority, ask.group, ask.owner)


class UserQueue:
    """The asks of one user in one group with one priority, in order; and by shape, in order within each."""

    def __init__(self, key: QueueKey, asks: list[SlotRequest]) -> None:
        """Begin with these requests, at least one, which are in order."""
        self.key, self.asks = key, asks
        self.shapes: dict[Shape, list[SlotRequest]] = {}
        for ask in asks:
            self.shapes.setdefault(ask.shape, []).append(ask)
        self.since = max(self.first.queued_at, self.first.failed_at)  # when its first ask came to be the first

    def __len__(self) -> int:
        return len(self.asks)

    @property
    def first(self) -> SlotRequest:
        """The ask that is first in order."""
        return self.asks[0]

    def ahead_of(self, ask: SlotRequest, most: int) -> list[SlotRequest]:
        """The first `most` of those that come before this one, in order."""
        return self.asks[: min(most, self.before(ask))]

    def add(self, ask: SlotRequest) -> None:
        """Put it in its place; one that comes before all others is the first from when it came (back)."""
        insort(self.asks, ask, key=_order)
        insort(self.shapes.setdefault(ask.shape, []), ask, key=_order)
        if self.first is ask:
            self.since = max(ask.queued_at, ask.failed_at)

    def remove(self, ask: SlotRequest, at: float) -> bool:
        """Take it out; whether any is left."""
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
        """How many of its asks come before this one."""
        return bisect_left(self.asks, ask.order, key=_order)


class Queue:
    """Asks by pool and line; those that rest, or for which something is prepared, hold nobody up and have no line."""

    def __init__(self) -> None:
        self.asks: dict[RequestKey, SlotRequest] = {}
        self.lines: dict[str, dict[QueueKey, UserQueue]] = {}
        self._wakes: list[tuple[float, RequestKey]] = []

    def __iter__(self) -> Iterator[SlotRequest]:
        return iter(self.asks.values())

    def line(self, ask: SlotRequest) -> UserQueue | None:
        """The line that it stands in; None while it has no turn."""
        return self.lines.get(ask.pool, {}).get(_line_key(ask))

    def stands(self, ask: SlotRequest) -> bool:
        """Whether it would start now if it could."""
        line = self.line(ask)
        asks = line.shapes.get(ask.shape, []) if line else []
        nth = bisect_left(asks, ask.order, key=_order)
        return nth < len(asks) and asks[nth].key == ask.key

    def starves(self, ask: SlotRequest, since: float) -> bool:
        """Whether it has been the first of its line from `since` on."""
        line = self.line(ask)
        return line is not None and line.first.key == ask.key and line.since <= since

    def add(self, ask: SlotRequest, at: float) -> None:
        """Take in a new ask, or one that has changed: the first of a line has been so for as long as before."""
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
        """Remember a request; return whether it belongs in a line now."""
        self.asks[ask.key] = ask
        if ask.preparing:
            return False
        if ask.rests(at):
            heapq.heappush(self._wakes, (ask.failed_at + ask.rest, ask.key))
            return False
        return True

    def remove(self, key: RequestKey, at: float) -> SlotRequest | None:
        """Forget an ask; it, or None where there was none."""
        ask = self.asks.pop(key, None)
        line = self.line(ask) if ask is not None else None
        if ask is not None and line is not None and self.stands(ask) and not line.remove(ask, at):
            del self.lines[ask.pool][line.key]
        return ask

    def wake(self, at: float) -> None:
        """Give those their turn who have rested by then."""
        while self._wakes and self._wakes[0][0] <= at:
            _, key = heapq.heappop(self._wakes)
            ask = self.asks.get(key)
            if ask is not None and not ask.preparing and not self.stands(ask):
                self.add(ask, at)
