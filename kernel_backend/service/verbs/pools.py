"""Implement operations on pools: list, add, replace, remove and check them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence

from kernel_backend.engines.base import CheckContext
from kernel_backend.engines.pools import PoolEngines
from kernel_backend.engines.probing.callers import CallingProbes
from kernel_backend.errors import Conflict, NotFound
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.pool_check import PoolCheck, PoolCheckRequest
from kernel_backend.model.cluster.pools import PoolSettings, PoolStatus, changes, read_pool
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.values import nearest
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.context import Context
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.verbs.quotas import check_admin
from kernel_backend.store.base import Store


class PoolVerbs:
    """Operations on pools.

    A change wakes the scheduler, which takes it into account in its next decision.
    """

    def __init__(
        self,
        store: Store,
        engines: PoolEngines,
        cluster_state: ClusterStateManager,
        context: Context,
        changed: Callable[[], None],
        probes: CallingProbes,
    ) -> None:
        """Create the operations; `changed` is called after each change of a pool."""
        self._store, self._engines, self._cluster_state = store, engines, cluster_state
        self._probes = probes
        self._configured_in, self._changed = context.configured_in, changed
        self._default = context.default_pool.split(",") if context.default_pool else []
        self._checkpoints, self._urls = context.checkpoint_storage.root, context.launcher_urls
        self._setting = asyncio.Lock()  # store and engines change together

    async def statuses(self, who: Person | None = None) -> list[PoolStatus]:
        """Return the pools, the local one first: settings, nodes, slots in use, requests, and problems.

        Allocations that searches keep are listed only for experiments that the user may see; all if `who` is None.
        """
        async with self._cluster_state.looking() as cluster:
            found = {each.name: each for each in self._engines.statuses_of_pools()}
            for name in sorted(cluster.pools - found.keys()):  # pools only of local nodes or of requests
                there = bool(cluster.of_pool(name))
                problem = "" if there else "it was removed, and experiments wait for it"
                found[name] = PoolStatus(name=name, engine=found[LOCAL].engine if there else "", problem=problem)
            default = self._default or [cluster.usual_pool]
            for name in default:
                if name not in found:
                    problem = f"there is no such pool; default_pool in {self._configured_in} names it"
                    found[name] = PoolStatus(name=name, engine="", problem=problem)
                found[name] = found[name].model_copy(update={"default": True})
            held = [each for each in self._engines.allocations() if who is None or self._may_see(who, each)]
            return [
                _with_use(cluster, each, held) for each in found.values() if each.name != LOCAL or _is_used(cluster)
            ]

    async def put(self, who: Person, name: str, settings: PoolSettings) -> PoolStatus:
        """Add a pool, or replace its settings; running gangs continue.

        Raises Forbidden unless the user is an admin, Conflict if the pool is defined in the service's configuration,
        and InvalidRequest if no engine can be created with this name or these settings.
        """
        check_admin(who, "pools are set by admins")
        pool = read_pool(name, settings.model_dump())
        async with self._setting:
            self._check_changeable(name)
            before = self._engines.pool(name)
            detail = ", ".join(changes(None if before is None else before.settings, settings))
            entry = _entry(who, "pool", name, detail)
            self._engines.add(pool)
            await asyncio.to_thread(self._store.set_pool, name, settings, entry)
            self._changed()
        return await self._status(name)

    async def remove(self, who: Person, name: str) -> PoolStatus:
        """Remove a pool, and return its last status; raises Conflict while experiments that have not ended use it.

        Raises Forbidden unless the user is an admin, and NotFound, which suggests the most similar name.
        """
        check_admin(who, "pools are removed by admins")
        async with self._setting:
            self._check_changeable(name)
            await self._check_exists(name)
            if used := await asyncio.to_thread(self._users, name):
                numbers = ", ".join(f"#{number}" for number in used)
                raise Conflict(f"pool {name} is used by experiments that have not ended: {numbers}; stop them first")
            status = await self._status(name)
            await self._engines.statuses()  # the loop may have asked some time ago
            self._engines.remove(name)
            entry = _entry(who, "remove pool", name, "")
            await asyncio.to_thread(self._store.set_pool, name, None, entry)
            self._changed()
        return status

    async def check(self, who: Person, name: str, request: PoolCheckRequest) -> PoolCheck:
        """Check a pool: its engine, and by a program (probe) on its nodes whether they have what trainings need.

        This takes up to two minutes. The probe runs as the user's Unix user if trainings do so; elsewhere it runs as
        the service, and only for admins. Raises Forbidden, NotFound, which suggests the most similar name, and Conflict
        for a pool whose settings cannot be used, or that is being checked.
        """
        if not (who.submits and self._engines.per_user(name)):
            check_admin(who, "pools are checked by admins")
        if name == LOCAL:
            raise Conflict(f"the pool {LOCAL} is the machine of the service itself: daylight doctor checks it")
        if name in self._engines.invalid:
            raise Conflict(f"pool {name} cannot be used: {self._engines.invalid[name]}")
        await self._check_exists(name)
        python = request.python or sys.executable
        context = CheckContext(python, self._checkpoints, self._urls(), who.name, self._probes, request.data)
        return PoolCheck(pool=name, findings=tuple(await self._engines.check(name, context)))

    def _may_see(self, who: Person, held: HeldAllocation) -> bool:
        experiment = self._cluster_state.cache.experiments.get(held.experiment)
        return who.admin or (experiment is not None and who.sees(experiment.owner, experiment.group))

    async def _check_exists(self, name: str) -> None:
        if self._engines.pool(name) is None:
            names = [each.name for each in await self.statuses()]
            raise NotFound(f"there is no pool {name}{nearest(name, names)}; there are {', '.join(names)}")

    async def _status(self, name: str) -> PoolStatus:
        return next(each for each in await self.statuses() if each.name == name)

    def _check_changeable(self, name: str) -> None:
        if name == LOCAL:
            raise Conflict(f"the pool {LOCAL} is the machine of the service itself: it is always there")
        pool = self._engines.pool(name)
        if name in self._engines.invalid or (pool is not None and pool.configured):
            raise Conflict(
                f"pool {name} is set in {self._configured_in}: change c.Daylight.pools there, and restart the service"
            )

    def _users(self, name: str) -> list[int]:
        unfinished = self._store.unfinished_experiments()
        return sorted(each.number for each in unfinished if name in each.config.pools)


def _is_used(cluster: ClusterState) -> bool:
    """Return whether the local pool has nodes or requests; a service with other pools may do without it."""
    return LOCAL in cluster.pools


def _with_use(cluster: ClusterState, pool: PoolStatus, held: Sequence[HeldAllocation]) -> PoolStatus:
    nodes = cluster.of_pool(pool.name)
    return pool.model_copy(
        update={
            "kinds": tuple(sorted({node.shown_kind for node in nodes})),
            "nodes": len(nodes),
            "slots": sum(node.slots for node in nodes),
            "used": sum(run.slots for run in cluster.runs.values() if run.pool == pool.name and not run.waiting),
            "allocations": tuple(each for each in held if each.pool == pool.name),
            "limit": cluster.limits_of_pools.get(pool.name, ""),
            "waiting": sum(request.within(pool.name) is not None for request in cluster.queue if request.nth == 0),
        }
    )


def _entry(who: Person, act: str, name: str, detail: str) -> AuditEntry:
    return AuditEntry(at=time.time(), who=who.name, act=act, on=f"pool {name}", detail=detail)
