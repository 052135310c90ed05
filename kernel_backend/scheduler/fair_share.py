"""Order requests by fair share: first the group with the least usage relative to its weight, and within it the user.

Older usage counts less (see `usage.Meter`). An account is charged in advance for an hour of each slot that it gets, so
that no account gets all free slots in one decision. All trainings of a user are charged to the same account.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kernel_backend.scheduler.queue import UserQueue
from kernel_backend.scheduler.quotas import Ledger
from kernel_backend.scheduler.requests import Order


class FairOrder:
    """Order in which users are served at one priority: by fair share, on a tie the earlier request first.

    It consists of user queues, each with the requests of one user, group and priority.
    """

    def __init__(self, lines: Iterable[UserQueue], ledger: Ledger) -> None:
        self._ledger = ledger
        self._groups: dict[str, list[tuple[float, Order, UserQueue]]] = {}
        for line in lines:
            self._groups.setdefault(line.key.group, []).append(self._member(line))
        for members in self._groups.values():
            heapq.heapify(members)
        self._heap = [self._group(group) for group in self._groups]
        heapq.heapify(self._heap)

    def next(self) -> UserQueue | None:
        """Return the user queue to serve next; None if all have been removed."""
        return self._groups[self._heap[0][2]][0][2] if self._heap else None

    def over(self, again: bool) -> None:
        """Finish serving the user queue that `next` returned last.

        If `again` is True, the queue is put back at the place of its new share; otherwise it is removed.
        """
        group = self._heap[0][2]
        members = self._groups[group]
        if again:
            heapq.heapreplace(members, self._member(members[0][2]))
        else:
            heapq.heappop(members)
        if members:
            heapq.heapreplace(self._heap, self._group(group))
        else:
            heapq.heappop(self._heap)

    def _member(self, line: UserQueue) -> tuple[float, Order, UserQueue]:
        return self._ledger.member_share(line.key.group, line.key.owner), line.first.order, line

    def _group(self, group: str) -> tuple[float, Order, str]:
        return self._ledger.group_share(group), self._groups[group][0][1], group
