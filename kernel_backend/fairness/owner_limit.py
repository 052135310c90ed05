"""Limit how many works of a kind run at once: in all, and of one user, so that a user leaves room for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

READ_AT_ONCE = 4  # whole files of users, such as parts of checkpoints, that requests have read in the service's threads


class OwnerLimit:
    """Limit of works that run at once: at most `most` in all, and `per_owner` of one user."""

    def __init__(self, most: int, per_owner: int) -> None:
        self._all, self._per_owner = asyncio.Semaphore(most), per_owner
        self._owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Wait until a work of this user may run, and count it during the block."""
        own = self._owners.setdefault(owner, asyncio.Semaphore(self._per_owner))
        async with own, self._all:
            yield
