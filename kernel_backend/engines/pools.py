"""Combine the engines of all pools: pass each call on to the right one, so that a broken pool affects no other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kernel_backend.engines.base import (
    AllocatingEngine,
    CheckContext,
    CheckedEngine,
    Engine,
    GangStatus,
    LimitedEngine,
    SharedEngine,
    Unconfirmed,
)
from kernel_backend.engines.marks import Marks
from kernel_backend.errors import Conflict, DaylightError, InvalidRequest
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool, PoolSettings, PoolStatus
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.reports import SpoolPage, SpoolPosition
from kernel_backend.model.resources import CLOSED, LOCAL, Node
from kernel_backend.model.views.overview import LogChunk

WAIT_S = 1.0  # time for an engine to answer; then its last answer is used, and a later call reads the new one
FIRST_S = 5.0  # the same for its first answer, so that a restart does not hold trials whose nodes are not known yet
LATE_S = 30.0  # age of an unanswered question from which the pool has a problem

Make = Callable[[Pool], Engine]
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class PoolEngines:
    """Engine for all pools together: the engine of the local pool, and one for each other pool.

    A call about a gang goes to the engine that runs the gang. While an engine fails or is slow, its last known nodes
    (as unhealthy) and its last known statuses are returned, and the problem of its pool is reported.
    """

    def __init__(
        self,
        local: Engine,
        make: Make,
        pools: Iterable[Pool],
        marks: Marks,
        invalid: Mapping[str, str] | None = None,
        closed: bool = False,
    ) -> None:
        """Create the engines of these pools by `make`; `local` is the engine of the local pool.

        `invalid` has the problems of pools whose settings cannot be used, by name. `marks` says which gangs an earlier
        process of the service has submitted. If the local pool is `closed`, it has no nodes and starts no gangs; gangs
        that run there go on to their end.
        """
        self.closed = closed
        self.name, self.caps = local.name, local.caps
        self._local, self._make, self._marks = local, make, marks
        self.invalid = dict(invalid or {})  # problem of each pool with unusable settings
        self._pools: dict[str, _PoolEngine] = {}
        self._checking: set[tuple[str, str]] = set()  # pools that are being checked, and the user of each check
        self._of: dict[AttemptId, str] = {}  # pool of each known gang
        self._local_pools = {LOCAL}  # pools of the local engine's nodes
        self._renamed: dict[tuple[str, str], tuple[Node, Node]] = {}
        self._marked: dict[str, list[AttemptId]] | None = None  # gangs of an earlier service, by pool
        for pool in pools:
            try:
                self.add(pool)
            except Exception as error:
                # Any error of an engine concerns only its own pool.
                self._pools[pool.name] = _PoolEngine(pool, None, _text(error))
                _log.error("pool %s cannot be used: %s", pool.name, _text(error))

    # Pools

    def add(self, pool: Pool) -> None:
        """Add a pool, or replace the pool of the same name; the new engine takes over the gangs of the replaced one.

        Raises the errors of creating an engine.
        """
        engine, before = self._make(pool), self._pools.get(pool.name)
        self._pools[pool.name] = new = _PoolEngine(pool, engine)
        self.invalid.pop(pool.name, None)
        if before is not None:
            new.nodes.last, new.gangs.last = before.nodes.last, before.gangs.last
        elif self._marked is not None:
            new.gangs.last = _unknown(self._marked.pop(pool.name, []))

    def remove(self, name: str) -> None:
        """Remove a pool; raise Conflict as long as its engine reports gangs, or searches keep allocations there."""
        pool = self._pools[name]
        if kept := [each.job or each.id for each in self.allocations() if each.pool == name]:
            raise Conflict(
                f"allocations in pool {name} are being given back ({', '.join(kept)}): remove it in a moment"
            )
        if pool.engine is not None and pool.gangs.last:
            gangs = ", ".join(map(str, sorted(pool.gangs.last)))
            raise Conflict(f"gangs in pool {name} are still ending ({gangs}): remove it in a moment")
        del self._pools[name]

    def pool(self, name: str) -> Pool | None:
        """Return the pool of this name; None for the local pool, an unknown one, and one with invalid settings."""
        found = self._pools.get(name)
        return None if found is None else found.pool

    def settings(self, name: str) -> PoolSettings | None:
        """Return the settings of a pool; None for the local pool, an unknown one, and one with invalid settings."""
        found = self.pool(name)
        return found.settings if found is not None else None

    def places(self, pool: str) -> bool:
        """Return True if Daylight chooses the nodes for gangs of a pool, False if the engine's own queue does."""
        found = self._pools.get(pool)
        return found is None or (found.engine is not None and found.engine.caps.places)

    def per_user(self, pool: str) -> bool:
        """Return True if gangs of a pool run as the Unix users who own them.

        Each user then checks the pool separately.
        """
        found = self._pools.get(pool)
        return found is not None and found.engine is not None and found.engine.caps.per_user_identity

    def most_waiting(self) -> dict[str, int]:
        """Return, by pool, how many gangs may wait in the queue of the pool's engine (such as Slurm) at the same time.

        Pools in which Daylight chooses the nodes are left out. The limit is raised by one for each free allocation that
        a search keeps, as the gang that gets it does not wait in the queue.
        """
        free = Counter(each.pool for each in self.allocations() if each.running and not each.gang and not each.closing)
        pools = {name: each.pool.settings for name, each in self._pools.items() if not self.places(name)}
        return {name: settings.most_waiting + free[name] for name, settings in pools.items()}

    def keeping(self) -> dict[str, AllocatingEngine]:
        """Return the engines that can keep allocations for several trials of a search, by pool."""
        found: dict[str, AllocatingEngine] = {}
        for name, each in self._pools.items():
            engine: object = each.engine
            if isinstance(engine, AllocatingEngine) and engine.keeps:
                found[name] = engine
        return found

    def shared(self) -> dict[str, SharedEngine]:
        """Return the engines whose nodes also run jobs of others and that can read the load there, by pool."""
        engines: dict[str, object] = {name: each.engine for name, each in self._pools.items()}
        return {name: engine for name, engine in engines.items() if isinstance(engine, SharedEngine)}

    def allocations(self) -> list[HeldAllocation]:
        """Return the allocations that searches keep or have requested, in all pools."""
        return [held for engine in self.keeping().values() for held in engine.allocations()]

    def problems(self) -> dict[str, str]:
        """Return why pools cannot be used now, by name; pools without a problem are left out."""
        found = {name: each.problem for name, each in self._pools.items() if each.problem}
        return self.invalid | found | ({LOCAL: CLOSED} if self.closed else {})

    def limits(self) -> dict[str, str]:
        """Return a sentence about each pool that is limited to fewer slots than its nodes offer, by name."""
        found: dict[str, str] = {}
        for name, each in self._pools.items():
            engine: object = each.engine
            if isinstance(engine, LimitedEngine) and (limit := engine.limit()):
                found[name] = limit
        return found

    def statuses_of_pools(self) -> list[PoolStatus]:
        """Return the last known status of every pool: the local pool first, then the others by name."""
        found = [each.status() for each in self._pools.values()]
        problems = self.invalid | {
            name: f"it was removed, and gangs still run there ({', '.join(map(str, keys))}): add it again"
            for name, keys in (self._marked or {}).items()
            if keys and name not in self._pools
        }
        found += [PoolStatus(name=name, engine="", problem=problem) for name, problem in problems.items()]
        local = PoolStatus(name=LOCAL, engine=self._local.name, problem=CLOSED if self.closed else "")
        return [local, *sorted(found, key=lambda each: each.name)]

    async def check(self, name: str, context: CheckContext) -> Sequence[PoolFinding]:
        """Check a pool and return the findings; raise Conflict if its engine has no check, or a check is running."""
        engine = self._pools[name].working()
        if not isinstance(engine, CheckedEngine):
            raise Conflict(f"pool {name}: the engine {engine.name} has no check")
        by = name, context.user if engine.caps.per_user_identity else ""
        if by in self._checking:
            raise Conflict(f"pool {name} is being checked: try again in two minutes")
        self._checking.add(by)
        try:
            return await engine.check(context)
        finally:
            self._checking.discard(by)

    # The interface of an engine

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes of all pools; a node whose name occurs in an earlier pool is renamed to `NAME@POOL`."""
        found = [] if self.closed else list(await self._local.nodes())
        self._local_pools = {LOCAL, *(node.pool for node in found)}
        if not self._pools:
            return found
        known = {node.name for node in found}
        pools = list(self._pools.values())
        for pool, nodes in zip(pools, await asyncio.gather(*(each.all_nodes() for each in pools)), strict=True):
            own = [self._distinct(node, pool.pool.name) if node.name in known else node for node in nodes]
            known |= {node.name for node in own}
            found += own
        return found

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start a gang by the engine of its pool; raise InvalidRequest if there is no such pool any more."""
        pool = self._pools.get(job.pool)
        if pool is None:
            if job.pool and job.pool not in self._local_pools:
                raise InvalidRequest(f"there is no pool {job.pool} any more")
            if self.closed:
                raise Conflict(f"pool {LOCAL}: {CLOSED}")
            self._of[job.id] = LOCAL
            await self._local.submit(job, token)
            return
        engine, self._of[job.id] = pool.working(), job.pool
        begun = GangStatus(key=job.id, phase="pending", token_digest=token_digest(token))
        pool.gangs.last = {**pool.gangs.last, job.id: begun}
        await engine.submit(job, token)
        pool.gangs.drop()

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of each gang in all pools; gangs of a removed pool are reported as running."""
        found = list(await self._local.statuses())
        if self._marked is None:
            await self._adopt()
        pools = list(self._pools.values())
        for pool, gangs in zip(pools, await asyncio.gather(*(each.all_gangs() for each in pools)), strict=True):
            self._of |= dict.fromkeys(gangs, pool.pool.name)
            found += gangs.values()
        for name, keys in (self._marked or {}).items():
            self._of |= dict.fromkeys(keys, name)
            found += _unknown(keys).values()
        return list({status.key: status for status in found}.values())

    async def release(self, key: AttemptId) -> None:
        """Make a gang save a checkpoint and exit; do nothing if the gang's pool cannot be used now."""
        pool = await self._pool_of(key)
        if pool == LOCAL:
            await self._local.release(key)
        elif (found := self._pools.get(pool)) is not None and found.engine is not None:
            await found.engine.release(key)
            found.gangs.drop()

    async def kill(self, key: AttemptId) -> None:
        """Kill a gang; raise Unconfirmed if it may still run.

        That may also be because its pool was removed or has no engine.
        """
        pool = await self._pool_of(key)
        if pool == LOCAL:
            await self._local.kill(key)
            return
        engine = self._engine_to_end(key, pool)
        try:
            await engine.kill(key)
        except Unconfirmed:
            raise
        except (DaylightError, OSError) as error:
            raise Unconfirmed(f"whether attempt {key} in pool {pool} has ended is not known: {_text(error)}") from None
        self._pools[pool].gangs.drop()

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of records from a gang's spool file: from offset `begin` on, with numbers above `after`.

        The spool is the file to which rank 0 appends its records.
        """
        return await self._reader(await self._pool_of(key)).records(key, after, begin)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a rank's log from a byte offset on, or its last `tail` bytes."""
        return await self._reader(await self._pool_of(key)).logs(key, rank, offset, tail)

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the processes of an attempt and rename its folder, so that another attempt can have its key."""
        pool = await self._pool_of(key)
        await (self._local if pool == LOCAL else self._engine_to_end(key, pool)).set_aside(key)
        self._drop(key, pool)

    async def forget(self, key: AttemptId) -> None:
        """Leave a gang out of `statuses` from now on, as the service has stored its end."""
        pool = await self._pool_of(key)
        await self._reader(pool).forget(key)
        self._drop(key, pool)

    # Which engine has a gang

    async def _pool_of(self, key: AttemptId) -> str:
        pool = self._of.get(key)
        if pool is None:
            pool = self._of[key] = await asyncio.to_thread(self._marks.pool, key)
        return pool

    def _reader(self, pool: str) -> Engine:
        """Return the engine by which to read the files of a pool's gangs: the pool's own, or else the local engine."""
        found = self._pools.get(pool)
        return self._local if found is None or found.engine is None else found.engine

    def _engine_to_end(self, key: AttemptId, pool: str) -> Engine:
        """Return the engine of a pool, in order to end a gang there; raise Unconfirmed if the pool has none."""
        found = self._pools.get(pool)
        if found is None:
            problem = self.invalid.get(pool, "there is no such pool any more: add it again, or end the gang yourself")
        elif found.engine is None:
            problem = found.problem
        else:
            return found.engine
        raise Unconfirmed(f"whether attempt {key} in pool {pool} has ended is not known: {problem}")

    def _drop(self, key: AttemptId, pool: str) -> None:
        self._of.pop(key, None)
        if (found := self._pools.get(pool)) is not None:
            found.gangs.drop()
            found.gangs.last = {other: status for other, status in found.gangs.last.items() if other != key}
        elif self._marked is not None and pool in self._marked:
            self._marked[pool] = [other for other in self._marked[pool] if other != key]

    async def _adopt(self) -> None:
        """Take over the gangs that an earlier process of the service submitted.

        They are reported as running until the engines of their pools answer.
        """
        self._marked = await asyncio.to_thread(self._marks.by_pool)
        for name, pool in self._pools.items():
            pool.gangs.last = {**_unknown(self._marked.pop(name, [])), **pool.gangs.last}

    def _distinct(self, node: Node, pool: str) -> Node:
        """Return a copy of the node under the name `NAME@POOL`, as another pool has a node of the same name.

        As long as the node is unchanged, the same copy is returned, which makes comparisons fast.
        """
        known, renamed = self._renamed.get((pool, node.name), (None, node))
        if known is not node:
            renamed = node.model_copy(update={"name": f"{node.name}@{pool}"})
            self._renamed[pool, node.name] = node, renamed
        return renamed


class _Latest(Generic[_T]):
    """Cache of an engine's newest answer to one request, such as for its nodes; a read waits only briefly."""

    def __init__(self, pool: str, ask: Callable[[], Awaitable[_T]], last: _T) -> None:
        self.last, self.problem = last, ""
        self._pool, self._ask = pool, ask
        self._task: asyncio.Task[_T] | None = None
        self._since, self._patience = 0.0, FIRST_S

    async def newest(self) -> _T:
        """Request the value from the engine; return its answer if that comes in about a second, else the last answer.

        The very first answer is awaited for five seconds. An answer that comes later is returned by a later call.
        """
        if self._task is None:
            self._task, self._since = asyncio.create_task(self._answer(), name=f"pool {self._pool}"), time.monotonic()
        task = self._task
        if not task.done() and (wait := self._since + self._patience - time.monotonic()) > 0:
            await asyncio.wait({task}, timeout=wait)
            self._patience = WAIT_S
        if task.done() and self._task is task:
            self._task = None
            self._take(task)
        elif time.monotonic() - self._since > LATE_S:
            self._tell(f"it has not answered for {time.monotonic() - self._since:.0f} s")
        return self.last

    def drop(self) -> None:
        """Ignore the answer to the request that is in progress, as it may not show a change that was just made."""
        if (task := self._task) is not None:
            self._task = None
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _answer(self) -> _T:
        return await self._ask()

    def _take(self, task: asyncio.Task[_T]) -> None:
        try:
            self.last = task.result()
            self._tell("")
        except Exception as error:
            # Any error of an engine concerns only its own pool.
            self._tell(_text(error))

    def _tell(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            _log.warning("pool %s: %s", self._pool, problem or "it can be used again")
        self.problem = problem


class _PoolEngine:
    """Engine of one pool, with its last known nodes and statuses.

    If the engine could not be created, `engine` is None, and `problem` says why.
    """

    def __init__(self, pool: Pool, engine: Engine | None, fault: str = "") -> None:
        self.pool, self.engine, self._fault = pool, engine, fault
        none: Mapping[AttemptId, GangStatus] = {}
        self.nodes: _Latest[Sequence[Node]] = _Latest(pool.name, self._ask_nodes, ())
        self.gangs: _Latest[Mapping[AttemptId, GangStatus]] = _Latest(pool.name, self._ask_gangs, none)
        self._away: tuple[Sequence[Node], list[Node]] = (), []

    @property
    def problem(self) -> str:
        """Return why the pool cannot be used now; "" if it can."""
        none = "" if self.nodes.last else "its engine has named no nodes so far"
        return self._fault or self.nodes.problem or self.gangs.problem or none

    async def all_nodes(self) -> Sequence[Node]:
        """Return the nodes of the pool; while the pool has a problem, the last known nodes, marked as unhealthy."""
        nodes = await self.nodes.newest()
        if not self.problem:
            return nodes
        if self._away[0] is not nodes:
            self._away = nodes, [node.model_copy(update={"healthy": False}) for node in nodes]
        return self._away[1]

    async def all_gangs(self) -> Mapping[AttemptId, GangStatus]:
        """Return the status of each gang of the pool, by attempt; if the engine is slow or fails, the last known."""
        return self.gangs.last if self.engine is None else await self.gangs.newest()

    def working(self) -> Engine:
        """Return the engine of the pool; raise Conflict if it could not be created."""
        if self.engine is None:
            raise Conflict(f"pool {self.pool.name} cannot be used now: {self._fault}")
        return self.engine

    def status(self) -> PoolStatus:
        """Return the last known status of the pool."""
        nodes = self.nodes.last
        return PoolStatus(
            name=self.pool.name,
            engine=self.pool.settings.engine,
            settings=self.pool.settings,
            configured=self.pool.configured,
            places=self.engine is not None and self.engine.caps.places,
            kinds=tuple(sorted({node.shown_kind for node in nodes})),
            nodes=len(nodes),
            slots=sum(node.slots for node in nodes),
            problem=self.problem,
        )

    async def _ask_nodes(self) -> Sequence[Node]:
        return () if self.engine is None else await self.engine.nodes()

    async def _ask_gangs(self) -> Mapping[AttemptId, GangStatus]:
        return {status.key: status for status in await self.working().statuses()}


def _unknown(keys: Iterable[AttemptId]) -> dict[AttemptId, GangStatus]:
    """Return the status "running" for each of these gangs, until their engine reports the real one.

    Otherwise the service would start them a second time.
    """
    return {key: GangStatus(key=key, phase="running") for key in keys}


def _text(error: Exception) -> str:
    return error.message if isinstance(error, DaylightError) else f"{type(error).__name__}: {error}".removesuffix(": ")
