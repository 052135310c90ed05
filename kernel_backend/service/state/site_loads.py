"""Read the load of pools that an external scheduler, such as Slurm, manages: what others use there, and what is free.

The load decides how many slots elastic gangs (whose number of slots may change) can have there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from kernel_backend.engines.pools import PoolEngines
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.site_load import UNKNOWN, SiteLoad

EVERY_S = 5.0  # between looks at a pool with elastic gangs
OLD_S = 30.0  # age from which a load says nothing about now
WAIT_S = 1.0  # time for an engine to answer; then a later look takes the answer
_CANNOT = "gangs there are their owners' own jobs, which the service cannot tell from those of others"


class SiteLoads:
    """Cache of the load (free slots, waiting jobs) of pools that an external scheduler, such as Slurm, manages.

    Only pools with elastic gangs are read, since an external queue may be long.
    """

    def __init__(self, engines: PoolEngines) -> None:
        self._engines = engines
        self._last: dict[str, SiteLoad] = {}
        self._wanted: dict[str, float] = {}  # time at which a pool's load must have been read, or later
        self._tasks: dict[str, asyncio.Task[SiteLoad]] = {}

    def last(self) -> Mapping[str, SiteLoad]:
        """Return the last load of each pool that an external scheduler manages; `UNKNOWN` if it is too old."""
        oldest = time.time() - OLD_S
        loads = ((pool, self._last.get(pool, UNKNOWN)) for pool in self._engines.most_waiting())
        return {pool: load if load.at > oldest else UNKNOWN for pool, load in loads}

    def newer(self, pool: str, since: float) -> bool:
        """Return whether the known load of a pool was read after `since` (seconds since the epoch) and is not too old.

        If it is not recent, the next `look` reads it again.
        """
        at, now = self._last.get(pool, UNKNOWN).at, time.time()
        if at < max(since, now - EVERY_S):
            self._wanted[pool] = max(since, self._wanted.get(pool, 0.0))
        return at >= max(since, now - OLD_S)

    async def look(self, pools: Iterable[str]) -> None:
        """Read the loads of `pools`, and of the pools for which `newer` found no recent one, unless they are recent.

        Waits a second at most; a later call takes results that arrive after that.
        """
        due = time.time() - EVERY_S
        newer = [*self._wanted.items()]  # other threads add to it
        wanted = dict.fromkeys(pools, due) | {pool: max(at, due) for pool, at in newer}
        sites = self._engines.most_waiting()
        for pool, since in wanted.items():
            if pool in sites and pool not in self._tasks and self._last.get(pool, UNKNOWN).at < since:
                self._tasks[pool] = asyncio.create_task(self._read(pool), name=f"load of pool {pool}")
        if self._tasks:
            done, _ = await asyncio.wait(self._tasks.values(), timeout=WAIT_S)
            for pool in [pool for pool, task in self._tasks.items() if task in done]:
                load = self._last[pool] = self._tasks.pop(pool).result()
                if load.at >= self._wanted.get(pool, 0.0):
                    self._wanted.pop(pool, None)

    async def refusal(self, pools: Iterable[str]) -> str:
        """Return why one of these pools can have no elastic gangs; "" if all can.

        The reason is that the service cannot see what others use in that pool.
        """
        pools = [pool for pool in pools if pool in self._engines.most_waiting()]
        await self.look(pools)
        hidden = (load for pool in pools if (load := self._last.get(pool, UNKNOWN)).hidden)
        return next((load.problem for load in hidden), "")

    async def _read(self, pool: str) -> SiteLoad:
        at, engine = time.time(), self._engines.shared().get(pool)
        if engine is None:
            return SiteLoad(at=at, problem=_CANNOT, hidden=True)
        try:
            return await engine.site_load()
        except (DaylightError, OSError, ValueError) as error:
            return SiteLoad(at=at, problem=str(error))
