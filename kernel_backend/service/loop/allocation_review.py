"""Give back jobs and pods that searches keep between trials, when they are unused or other gangs need them."""

from __future__ import annotations

import logging
from collections import defaultdict

from kernel_backend.engines.pools import PoolEngines
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import ExperimentState
from kernel_backend.scheduler.search_allocations import SearchOwner, given_back
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import pools_of

_log = logging.getLogger(__name__)


class AllocationReview:
    """Review of the allocations (jobs, pods) that searches keep between trials, in each round of the control loop."""

    def __init__(self, engines: PoolEngines, cluster_state: ClusterStateManager) -> None:
        self._engines, self._cluster_state = engines, cluster_state

    async def review(self) -> bool:
        """Give back kept allocations that are unused or that other gangs need; return False if no search keeps any."""
        by_pool: defaultdict[str, list[HeldAllocation]] = defaultdict(list)
        for each in self._engines.allocations():
            by_pool[each.pool].append(each)
        if not by_pool:
            return False
        async with self._cluster_state.looking() as cluster:
            found = {
                pool: given_back(cluster, pool, held, self._active(cluster, pool)) for pool, held in by_pool.items()
            }
        for pool, why_by_id in found.items():
            for id, why in why_by_id.items():
                await self._give_back(pool, id, why)
        return True

    def _active(self, cluster: ClusterState, pool: str) -> dict[int, SearchOwner]:
        """Return the owner and group of each active search that may train in a pool, by the search's number."""
        searches = self._cluster_state.cache.searches.values()
        active = [each for each in searches if each.state is ExperimentState.ACTIVE]
        there = [each for each in active if pool in pools_of(each.config, cluster)]
        return {each.number: SearchOwner(each.owner, each.group) for each in there}

    async def preempted(self, key: AttemptId, why: str) -> None:
        """Give back the kept allocation in which a preempted gang runs; `key` is the gang's attempt, `why` the reason.

        Otherwise the freed slots would go to the next trial of the same search.
        """
        for each in self._engines.allocations():
            if each.gang == str(key) and not each.closing:
                await self._give_back(each.pool, each.id, f"attempt {key} is preempted: {why}")

    async def _give_back(self, pool: str, id: str, why: str) -> None:
        if (engine := self._engines.keeping().get(pool)) is None:  # the pool has been removed
            return
        try:
            await engine.give_back(id, why)
        except (DaylightError, OSError) as error:
            _log.warning("allocation %s in pool %s cannot be given back now: %s", id, pool, error)
