"""Maintain the queue: in each pool one queue per priority, group and user (a user queue), in order of queueing."""

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
    """Key of a user queue, which has the requests of one user, group and priority."""

    priority: int
    group: str
    owner: str


def _line_key(request: SlotRequest) -> QueueKey:
    return QueueKey(request.priority, request.group, request.owner)


class UserQueue:
    """Requests of one user, group and priority, in the order in which they were queued.

    They are also indexed by shape: requests of one shape have the same size and constraints.
    """

    def __init__(self, key: QueueKey, requests: list[SlotRequest]) -> None:
        """Create a queue of at least one request; the requests must be in order."""
        self.key, self.requests = key, requests
        self.shapes: dict[Shape, list[SlotRequest]] = {}
        for request in requests:
            self.shapes.setdefault(request.shape, []).append(request)
        self.since = max(self.first.queued_at, self.first.failed_at)  # when its head became the head

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def first(self) -> SlotRequest:
        """Return the head of the queue."""
        return self.requests[0]

    def ahead_of(self, request: SlotRequest, most: int) -> list[SlotRequest]:
        """Return the requests ahead of this one, from the head of the queue on; at most `most`."""
        return self.requests[: min(most, self.before(request))]

    def add(self, request: SlotRequest) -> None:
        """Insert a request.

        If it becomes the head of the queue, `since` (the time from which the head has been waiting) is set to the time
        when the request was queued or requeued.
        """
        insort(self.requests, request, key=_order)
        insort(self.shapes.setdefault(request.shape, []), request, key=_order)
        if self.first is request:
            self.since = max(request.queued_at, request.failed_at)

    def remove(self, request: SlotRequest, at: float) -> bool:
        """Remove a request at time `at`; return whether any request is left.

        If it was the head of the queue, the next request is the head from then on.
        """
        was_first = request.key == self.first.key
        of_shape = self.shapes[request.shape]
        for requests in (self.requests, of_shape):
            del requests[bisect_left(requests, request.order, key=_order)]
        if not of_shape:
            del self.shapes[request.shape]
        if self.requests and was_first:
            self.since = max(at, self.first.queued_at)
        return bool(self.requests)

    def before(self, request: SlotRequest) -> int:
        """Return how many requests of the queue are ahead of this one."""
        return bisect_left(self.requests, request.order, key=_order)


class Queue:
    """Queue of the cluster: the requests of each pool, in one queue per user, group and priority.

    A request that waits in several pools is queued in each. Requests that wait for a retry after an error (backoff) or
    for preparation, such as an environment, are recorded, but are in no user queue, so that they block no others.
    """

    def __init__(self) -> None:
        self.requests: dict[RequestKey, SlotRequest] = {}
        self.lines: dict[str, dict[QueueKey, UserQueue]] = {}
        self.ineligible: set[RequestKey] = set()  # in backoff or preparation
        self._wakes: list[tuple[float, RequestKey]] = []

    def __iter__(self) -> Iterator[SlotRequest]:
        return iter(self.requests.values())

    def line(self, request: SlotRequest) -> UserQueue | None:
        """Return the user queue that this request belongs to, in its pool; None if that queue has no requests."""
        return self.lines.get(request.pool, {}).get(_line_key(request))

    def stands(self, request: SlotRequest) -> bool:
        """Return whether a request can be scheduled now, that is, whether it is in its user queue."""
        line = self.line(request)
        requests = line.shapes.get(request.shape, []) if line else []
        nth = bisect_left(requests, request.order, key=_order)
        return nth < len(requests) and requests[nth].key == request.key

    def starves(self, request: SlotRequest, since: float) -> bool:
        """Return whether a request has been first among those of its user, group and priority since time `since`."""
        line = self.line(request)
        return line is not None and line.first.key == request.key and line.since <= since

    def add(self, request: SlotRequest, at: float) -> None:
        """Add a new or changed request at time `at`.

        If a changed request was the head of its user queue and still is, its time as the head continues.
        """
        known = self.requests.get(request.key)
        heads: dict[str, float] = {}  # time since which it is the head, by pool
        if known is not None:
            heads = dict.fromkeys(
                {each.pool for each in request.in_each_pool} - {known.pool, *known.pools}, at
            )  # moved
            for each in known.in_each_pool:
                before = self.line(each)
                if before is not None and before.first.key == request.key:
                    heads[each.pool] = before.since
            self.remove(request.key, at)
        if not self._take_in(request, at):
            return
        key = _line_key(request)
        for each in request.in_each_pool:
            lines = self.lines.setdefault(each.pool, {})
            line = lines.get(key)
            if line is None:
                lines[key] = line = UserQueue(key, [each])
            else:
                line.add(each)
            if each.pool in heads and line.first.key == request.key:
                line.since = heads[each.pool]

    def fill(self, requests: Iterable[SlotRequest], at: float) -> None:
        """Fill an empty queue with many requests; sorting them once is faster than adding each."""
        found: defaultdict[tuple[str, int, str, str], list[SlotRequest]] = defaultdict(list)
        for request in sorted(requests, key=_order):
            for each in request.in_each_pool if self._take_in(request, at) else ():
                found[each.pool, each.priority, each.group, each.owner].append(each)
        for (pool, *_), theirs in found.items():
            key = _line_key(theirs[0])
            self.lines.setdefault(pool, {})[key] = UserQueue(key, theirs)

    def _take_in(self, request: SlotRequest, at: float) -> bool:
        """Record a request, and return whether it can be scheduled now.

        If it returns False, the request waits for preparation or for a retry, and must be put in no user queue.
        """
        self.requests[request.key] = request
        backs_off = not request.preparing and request.backs_off(at)
        if backs_off:
            heapq.heappush(self._wakes, (request.failed_at + request.rest, request.key))
        if request.preparing or backs_off:
            self.ineligible.add(request.key)
            return False
        return True

    def remove(self, key: RequestKey, at: float) -> SlotRequest | None:
        """Remove and return the request with this key; None if there is none."""
        request = self.requests.pop(key, None)
        self.ineligible.discard(key)
        for each in request.in_each_pool if request is not None else ():
            line = self.line(each)
            if line is not None and self.stands(each) and not line.remove(each, at):
                del self.lines[each.pool][line.key]
        return request

    def wake(self, at: float) -> None:
        """Put the requests whose waiting time after an error has ended by `at` into their user queues."""
        while self._wakes and self._wakes[0][0] <= at:
            _, key = heapq.heappop(self._wakes)
            request = self.requests.get(key)
            if request is not None and not request.preparing and not self.stands(request):
                self.add(request, at)
