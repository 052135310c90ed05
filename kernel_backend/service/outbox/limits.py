"""Limit how much of the outbox one user can take: messages that are being sent, and tests of webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import ceil
from time import monotonic
from weakref import WeakValueDictionary

from kernel_backend.errors import Conflict
from kernel_backend.service.outbox.base import AT_ONCE, PER_OWNER

MOST_TESTS = 5
TESTS_S = 60.0


class SendLimit:
    """Limit of messages that are being sent: at most `AT_ONCE` in all, and `PER_OWNER` of an owner's webhooks."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Wait until a message may be sent to a webhook of this owner."""
        own = self._owners.setdefault(owner, asyncio.Semaphore(PER_OWNER))
        async with own, self._all:
            yield


class TestLimit:
    """Limit of tests of webhooks by a user: one test at a time, and at most `MOST_TESTS` within `TESTS_S` seconds."""

    def __init__(self) -> None:
        self._begun: dict[str, list[float]] = {}
        self._testing: set[str] = set()

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Count a test by this user; raises Conflict if they test a webhook already, or have tested too many."""
        now = monotonic()
        recent = [at for at in self._begun.get(user, ()) if now - at < TESTS_S]
        if user in self._testing:
            raise Conflict("a test of a webhook of yours is running: wait for its result, then test the next one")
        if len(recent) >= MOST_TESTS:
            wait = ceil(TESTS_S - (now - recent[0]))
            raise Conflict(f"{MOST_TESTS} tests of webhooks within {TESTS_S:g} s are the limit: try again in {wait} s")
        self._begun[user] = [*recent, now]
        self._testing.add(user)
        try:
            yield
        finally:
            self._testing.discard(user)
