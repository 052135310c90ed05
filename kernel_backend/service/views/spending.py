"""Report slot-hours, lost slot-hours, energy and cost by user, group, month or experiment."""

from __future__ import annotations

import asyncio
import time

from kernel_backend.engines.pools import PoolEngines
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.accounting import BY, By, SpendingReport, account
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.values import nearest
from kernel_backend.store.base import Store


class SpendingReader:
    """Reader of the slot-hours, energy and cost of experiments: of all users for admins, else of the user's own."""

    def __init__(self, store: Store, engines: PoolEngines, local_price: float | None) -> None:
        self._store, self._engines, self._local_price = store, engines, local_price

    async def report(self, who: Person, by: str, since: float | None, until: float | None) -> SpendingReport:
        """Return the slot-hours, energy and cost from `since` to `until` (by default now), in seconds since the epoch.

        Raises InvalidRequest.
        """
        kind: By | None = next((each for each in BY if each == by), None)
        if kind is None:
            raise InvalidRequest(f"by={by[:50]}{nearest(by, BY)}: must be {', '.join(BY[:-1])} or {BY[-1]}")
        now = time.time()
        until = now if until is None else min(until, now)
        if since is not None and not since < until:
            raise InvalidRequest(f"since={since:.0f} is not before until={until:.0f}")
        owner = None if who.admin else who.name
        attempts = await asyncio.to_thread(self._store.spending, owner, since or 0.0, until)
        return await asyncio.to_thread(account, attempts, kind, self._prices(), since, until)

    def _prices(self) -> dict[str, float]:
        """Return the price of a slot-hour of each pool that has one."""
        settings = {pool.name: pool.settings for pool in self._engines.statuses_of_pools()}
        prices = {name: each.price for name, each in settings.items() if each is not None}
        return {name: price for name, price in (prices | {LOCAL: self._local_price}).items() if price is not None}
