"""Measure elastic gangs (with a changing number of slots) that could grow: their speed, and the time of a restart."""

from __future__ import annotations

import asyncio
import time

from kernel_backend.scheduler.requests import Allocation, RequestKey
from kernel_backend.scheduler.speedup import Progress, measured_progress
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.site_loads import SiteLoads
from kernel_backend.store.base import Store

LOOK_S = 5.0  # between measurements of a gang


class ElasticReview:
    """Review of the elastic gangs, whose number of slots may change; called in each round of the control loop."""

    def __init__(self, store: Store, site_loads: SiteLoads, cluster_state: ClusterStateManager) -> None:
        self._store, self._site_loads, self._cluster_state = store, site_loads, cluster_state
        self._looked: dict[RequestKey, float] = {}  # when each gang was measured, by time.monotonic()

    async def review(self) -> None:
        """Measure each gang that could grow (speed, and time of a restart), and store the result in the cluster state.

        A gang that was measured less than `LOOK_S` seconds ago is skipped.
        """
        cluster, now = await self._cluster_state.now(), time.monotonic()
        await self._site_loads.look({run.pool for run in cluster.runs.values() if run.elastic is not None})
        could = {run.key for run in cluster.runs.values() if _could_grow(run, cluster)}
        self._looked = {key: at for key, at in self._looked.items() if key in could}
        for key in could:
            if now - self._looked.get(key, -LOOK_S) >= LOOK_S:
                self._looked[key] = now
                self._cluster_state.set_progress(key, await asyncio.to_thread(self._measured, key))

    def _measured(self, key: RequestKey) -> Progress | None:
        trial, attempts = self._store.trial(*key[:2]), self._store.attempts(*key[:2])
        return measured_progress(trial, attempts, self._store.times(*key[:2]), time.time())


def _could_grow(run: Allocation, cluster: ClusterState) -> bool:
    if run.elastic is None or run.leaving is not None or run.committed is None or not run.elastic.larger:
        return False
    free = any(cluster.free[node.name] for node in cluster.usable(run.pool))
    return run.slots < run.elastic.larger[-1] and free
