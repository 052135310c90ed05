"""Maintain the scheduler's cluster state incrementally.

The cost of a scheduling round depends on the number of changes, not on the number of records. A restarted service
computes the same state from the store.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from kernel_backend.engines.base import GangStatus
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.usage import UsageInterval
from kernel_backend.model.experiment import Experiment, ScheduledExperiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.resources import Node
from kernel_backend.model.states import HOLDING_SLOTS, AttemptState, ExperimentState, TrialState
from kernel_backend.model.trial import Attempt, ScheduledTrial, checkpoint_order
from kernel_backend.model.views.overview import Wait
from kernel_backend.scheduler.decisions import Decisions, Start
from kernel_backend.scheduler.explain.explain import ordinal
from kernel_backend.scheduler.other_programs import take_in
from kernel_backend.scheduler.requests import ANY_TRIAL, Allocation, RequestKey, Reservation, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.run_lengths import PastLengths
from kernel_backend.scheduler.speedup import Progress
from kernel_backend.scheduler.state import FREE, ClusterState, UsageByName
from kernel_backend.service.effective_quotas import EffectiveQuotas
from kernel_backend.service.state.nodes import MarkedNodes, set_nodes
from kernel_backend.service.state.requests import RequestBuilder, elastic_request, pools_of
from kernel_backend.service.state.reservations import StoredReservations, reservation
from kernel_backend.service.state.site_queues import PoolStates
from kernel_backend.service.state.store_cache import RecordChange, StoreCache
from kernel_backend.store.base import Store

FADED = 10  # half-lives after which past slot use is ignored
LEAVING = (TrialState.RELEASING, TrialState.STOPPING)
SET_BACK_S = 5.0  # clock steps backwards up to this many seconds are ignored


class ClusterStateManager:
    """Owner of the cluster state, which only tasks on the event loop change, one at a time.

    To read the state on the event loop without an `await` in between, use `now`. To read it in a thread, use `looking`,
    which locks it against changes.
    """

    def __init__(
        self,
        store: Store,
        marked_nodes: MarkedNodes,
        stored_quotas: EffectiveQuotas,
        request_builder: RequestBuilder,
        rules: Rules,
        clock: Callable[[], float] = time.time,
        pool_states: Callable[[StoreCache], PoolStates] = lambda _: PoolStates(),
    ) -> None:
        """Create the manager; `pool_states` returns, for all pools, why they start no gangs now or have fewer slots."""
        self._store, self._marked_nodes, self._stored_quotas, self._request_builder, self._rules = (
            store,
            marked_nodes,
            stored_quotas,
            request_builder,
            rules,
        )
        self._clock, self._pool_states = clock, pool_states
        self._lock = asyncio.Lock()
        self._starting: dict[RequestKey, Start] = {}  # starts whose attempts are being created
        self._begin()

    def _begin(self) -> None:
        self._cluster: ClusterState | None = None
        self.cache = StoreCache(self._store)
        self.lengths = PastLengths()
        self.unaligned: set[int] = set()  # experiments to reconcile with their trials
        self._reservations = StoredReservations(self._store)
        self._numbers: dict[RequestKey, int] = {}  # attempt number of each gang that holds slots
        self._released: dict[RequestKey, Reservation] = {}  # reservations of released gangs, which may be requeued
        self._touched: set[RequestKey] = set()  # keys of requests to update in the next round
        self._unsteady: set[RequestKey] = set()  # keys of requests that may change without a change in the store
        self._anonymous: dict[int, int] = {}  # number of requests of each search
        self.pending: dict[AttemptId, str] = {}  # why gangs wait in their engines' own queues
        self._placed: frozenset[AttemptId] = frozenset()  # gangs to which their engines have given nodes

    # Reading

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[ClusterState]:
        """Yield the current cluster state, locked against changes during the `async with` block."""
        async with self._lock:
            yield await self._current()

    async def now(self) -> ClusterState:
        """Return the current cluster state."""
        async with self.looking() as cluster:
            return cluster

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[ClusterState]:
        """Yield the cluster state for a scheduling decision, after a short wait for what threads read in users' files.

        Without the wait, trials whose files are not read yet would lose their queue positions after a restart. The wait
        is limited, so that a slow disk or agent of one user does not delay the others.
        """
        async with self.looking() as picture:
            if not self._request_builder.unsettled:
                yield picture
                return
        await self._request_builder.settle()  # the state may be read meanwhile
        async with self.looking() as cluster:
            yield cluster

    def requests_of(self, experiment: int) -> list[SlotRequest]:
        """Return the queued slot requests of an experiment, in queue order."""
        if self._cluster is None:
            return []
        requests = self._cluster.queue.requests
        keys = [RequestKey(experiment, index) for index in self.cache.trials.get(experiment, {})]
        keys += [RequestKey(experiment, ANY_TRIAL, nth) for nth in range(self._anonymous.get(experiment, 0))]
        return sorted((requests[key] for key in keys if key in requests), key=lambda request: request.order)

    def pending_wait(self, attempt: AttemptId) -> Wait:
        """Return why a gang waits in an external queue, such as Slurm's, and its place among Daylight's gangs there."""
        runs = self._cluster.runs if self._cluster is not None else {}
        own = runs.get(RequestKey(attempt.experiment, attempt.trial))
        if own is None:
            return Wait(reason="about to be handed over", place=1)
        waiting = [run for run in runs.values() if run.waiting and run.key.is_gang and run.pool == own.pool]
        ahead = sum(run.since < own.since for run in waiting)
        reason = self.pending.get(attempt, "about to be handed over")
        return Wait(reason=f"{own.pool}: {ordinal(ahead + 1)} of ours; {reason}", place=ahead + 1)

    async def _current(self) -> ClusterState:
        try:
            if self._cluster is not None and self._clock() < self._cluster.at - SET_BACK_S:
                self._begin()  # rebuild it: its clock would stand still, and with it backoff and time limits
            nodes = await self._marked_nodes.newest()
            if self._cluster is None:
                with _no_collection():
                    self._cluster = await self._begun(nodes)
                self._look_at_pools(self._cluster)
                return self._cluster
            changes = await asyncio.to_thread(self.cache.read)
            cluster = self._cluster
            cluster.pass_to(self._clock())
            if set_nodes(cluster, nodes):
                self.reconcile_all()  # the change may make placements possible or impossible
            await self._set_quotas(cluster)
            for change in changes:
                self._take_in(cluster, change)
            take_in(cluster, self._stored_quotas.servers)
            keys, self._touched = self._touched | self._unsteady, set()
            await self._renew(cluster, keys)
            self._look_at_pools(cluster)
            return cluster
        except BaseException:
            self._begin()  # a change may be half applied: the next reader rebuilds the state
            raise

    def _look_at_pools(self, cluster: ClusterState) -> None:
        cluster.closed_pools, cluster.limits_of_pools, cluster.site_loads = self._pool_states(self.cache)
        numbers = {key: number for key, number in self._numbers.items() if cluster.runs[key].waiting}
        cluster.placed = {key for key, number in numbers.items() if AttemptId(*key[:2], number) in self._placed}

    # Applying decisions

    def decided(self, cluster: ClusterState, decisions: Decisions) -> None:
        """Put the reservations that the scheduler has decided into the cluster state, in place of the earlier ones.

        A request whose gang is being started keeps its reservation until the gang holds slots. A gang that must exit to
        change its number of slots gets a reservation for its restart.
        """
        starting = (start.reservation for start in decisions.starts)
        cluster.reservations = (*(each for each in starting if each is not None), *decisions.reservations)
        for preempt in decisions.preempts:
            cluster.keep_for_return(preempt)

    @asynccontextmanager
    async def starting(self, key: RequestKey, start: Start) -> AsyncIterator[None]:
        """Keep the reservation of `start` while the block creates the attempt, even if the service restarts meanwhile.

        `key` is the request of the trial that is started. If the block fails, the request gets its reservation back.
        """
        before, kept = self._cluster, start.reservation
        if before is not None and kept is not None:
            before.reservations = tuple(each for each in before.reservations if each.key != kept.key)
            start = replace(start, reservation=kept._replace(key=key))
        self._starting[key] = start
        try:
            if start.passed or kept is not None:
                await self.keep()
            yield
        except BaseException:
            self._starting.pop(key, None)
            if kept is not None and self._cluster is not None:
                self._cluster.reservations = (kept, *self._cluster.reservations)
            raise

    async def keep(self) -> None:
        """Store the current reservations and queue positions, so that they survive a restart."""
        if self._cluster is not None:
            await self._reservations.keep(self._cluster, self._starting)

    def reconcile_all(self) -> None:
        """Mark all experiments as changed, so that the next round of the control loop checks the trials of each."""
        self.unaligned |= self.cache.experiments.keys()

    def look_again(self, key: RequestKey) -> None:
        """Have the next round compute the slot request `key` again, after a change that is not in the store."""
        self._touched.add(key)

    # Rebuilding

    async def _begun(self, nodes: Iterable[Node]) -> ClusterState:
        self.cache.fill(await asyncio.to_thread(self.cache.read_all))
        cluster = await self._afresh(nodes)
        # In the order of the cache, in which records are neighbours in memory: fastest for 100,000 records.
        await self._renew(cluster, [RequestKey(number, nth) for number, of in self.cache.trials.items() for nth in of])
        self._reservations.restore(cluster)
        return cluster

    async def _afresh(self, nodes: Iterable[Node]) -> ClusterState:
        users, groups = self._stored_quotas.users, self._stored_quotas.groups
        cluster = ClusterState(
            nodes, at=self._clock(), users=users, groups=groups, rules=self._rules, lengths=self.lengths
        )
        cluster.returning = self._released.keys()
        intervals, _ = await asyncio.gather(
            asyncio.to_thread(self._store.usage_intervals, self._horizon(cluster)),
            asyncio.to_thread(self._reservations.read),
        )
        for attempt in sorted(self.cache.attempts.values(), key=lambda each: each.created_at):
            experiment = self.cache.experiments.get(attempt.experiment)
            if experiment is None:  # the experiment has ended, but this attempt is not closed yet
                experiment = await asyncio.to_thread(self._ended, attempt.experiment)
            self._hold(cluster, attempt, experiment, charged=True)
        take_in(cluster, self._stored_quotas.servers)
        cluster.charge(self._lasting(cluster, intervals))
        for interval in intervals:
            self.lengths.add(interval.owner, interval.slots, interval.begun, interval.ended, interval.outcome)
            if interval.attempt.experiment in self.cache.searches:
                self._request_builder.got(interval.attempt.experiment, interval.begun)
        self.reconcile_all()
        return cluster

    def _ended(self, number: int) -> Experiment | None:
        """Return an experiment that has ended while its attempts still hold slots; None if its record is unreadable."""
        try:
            return self._store.experiment(number)
        except (ValueError, TypeError):
            return None  # its gangs still count as holding slots

    def _horizon(self, cluster: ClusterState) -> float:
        """Return the time (seconds since the epoch) before which the use of slots no longer affects the schedule.

        It is the start of the longest slot-hours window, or the time before which use is negligible for fair shares,
        whichever is earlier.
        """
        quotas = [*cluster.users.quotas.values(), *cluster.groups.quotas.values()]
        longest = max((each.slot_hours.window for each in quotas if each.slot_hours is not None), default=0.0)
        return cluster.at - max(FADED * self._rules.half_life, longest)

    def _lasting(self, cluster: ClusterState, intervals: Iterable[UsageInterval]) -> Iterator[UsageInterval]:
        """Yield the intervals of slot use in the store as they are in the cluster state, which may be older.

        An interval may have ended in the store though the cluster state still has its gang: it is yielded without an
        end. The intervals of gangs that still wait in an external queue are left out, since they use nothing yet.
        """
        for interval in intervals:
            key = RequestKey(interval.attempt.experiment, interval.attempt.trial)
            if self._numbers.get(key) == interval.attempt.number:
                if cluster.runs[key].waiting:
                    continue  # a gang uses nothing before its engine has granted its slots
                yield interval._replace(ended=None)
            elif interval.ended is not None:
                yield interval

    # Quotas

    async def _set_quotas(self, cluster: ClusterState) -> None:
        users = _differences(cluster.users, self._stored_quotas.users)
        groups = _differences(cluster.groups, self._stored_quotas.groups)
        if not users and not groups:
            return
        windows = _windows(cluster.users) | _windows(cluster.groups)
        for accounts, quotas in ((cluster.users, users), (cluster.groups, groups)):
            for name, quota in quotas.items():
                accounts.set(name, quota)
        if (_windows(cluster.users) | _windows(cluster.groups)) - windows:
            intervals = await asyncio.to_thread(self._store.usage_intervals, self._horizon(cluster))
            cluster.charge(self._lasting(cluster, intervals))
        for request in list(cluster.queue):
            if request.owner in users or request.group in groups:
                self._touched.add(request.key)  # its priority may have changed
        self.reconcile_all()

    # Changes from the store

    def _take_in(self, cluster: ClusterState, change: RecordChange) -> None:
        record = change.record
        self.cache.take_in([change])
        match record:
            case ScheduledExperiment():
                self.unaligned.add(record.number)
                self._touched |= {
                    RequestKey(record.number, index) for index in self.cache.trials.get(record.number, {})
                }
            case ScheduledTrial():
                self.unaligned.add(record.experiment)
                key = RequestKey(record.experiment, record.index)
                self._touched.add(key)
                if key in cluster.runs:
                    self._watch(cluster, cluster.runs[key], record, change.at)
            case Attempt():
                self._take_in_attempt(cluster, record)

    def _take_in_attempt(self, cluster: ClusterState, attempt: Attempt) -> None:
        key = RequestKey(attempt.experiment, attempt.trial)
        holds, known = attempt.state is not AttemptState.ENDED, self._numbers.get(key, 0)
        if known == attempt.number and holds:
            self._grant(cluster, key, attempt)
            return
        if known > attempt.number:
            return
        self._touched.add(key)
        if known:
            ended = attempt.created_at if attempt.ended_at is None or known < attempt.number else attempt.ended_at
            run = cluster.let_go(key, at=ended)
            del self._numbers[key]
            if not run.waiting:
                self.lengths.add(run.owner, run.slots, run.since, ended, attempt.outcome)
            if run.reservation is not None:
                self._released[key] = run.reservation
        if holds:
            self._hold(cluster, attempt, self.cache.experiments[attempt.experiment])
            if attempt.experiment in self.cache.searches:
                self._request_builder.got(attempt.experiment, attempt.created_at)

    def _grant(self, cluster: ClusterState, key: RequestKey, attempt: Attempt) -> None:
        """Mark in the cluster state that a gang which waited in an external queue, such as Slurm's, has got its slots.

        From the time of the grant on, the slots are charged to its owner, and its time limit runs. Does nothing for
        other gangs.
        """
        run = cluster.runs[key]
        if not run.waiting or attempt.granted_at is None:
            return
        experiment = self.cache.experiments.get(attempt.experiment)
        max_time = experiment.config.max_time if experiment is not None else None
        ends = None if max_time is None else attempt.granted_at + max_time
        cluster.let_go(key)
        actual = attempt.actual if attempt.nodes else ()
        granted = replace(run, since=attempt.granted_at, ends=ends, waiting=False, actual=actual)
        cluster.hold(granted)

    def _hold(
        self, cluster: ClusterState, attempt: Attempt, experiment: ScheduledExperiment | None, *, charged: bool = False
    ) -> None:
        key = RequestKey(attempt.experiment, attempt.trial)
        start, record, trial = self._starting.pop(key, None), self._reservations.of(key), self.cache.trial(*key[:2])
        promised: dict[str, Any] = {}
        if start is not None:
            promised = {"passed": start.passed, "reservation": start.reservation}
        elif record is not None:
            promised = {"passed": record.passed, "reservation": reservation(record), "committed": record.committed}
            asked = record.leaving is not None and record.leaving >= attempt.created_at  # not the previous attempt
            if asked and trial is not None and trial.state in LEAVING:
                promised["leaving"] = record.leaving
                elastic = experiment is not None and experiment.config.least_slots is not None
                promised["returns"] = elastic and promised["reservation"] is not None
        max_time = experiment.config.max_time if experiment is not None else None
        pool = _pool(cluster, attempt)
        if experiment is not None and trial is not None:
            promised["elastic"] = elastic_request(experiment, trial, pool)
        waiting, since = attempt.state is AttemptState.PENDING, attempt.granted_at or attempt.created_at
        run = Allocation(
            key,
            attempt.placement,
            since,
            experiment.owner if experiment is not None else "",
            experiment.group if experiment is not None else "",
            pool,
            ends=None if max_time is None or waiting else since + max_time,
            waiting=waiting,
            actual=attempt.actual if attempt.nodes else (),
            **promised,
        )
        self._numbers[key] = attempt.number
        cluster.hold(run, charged=charged)
        self._watch(cluster, run, trial, self._clock())

    def _watch(self, cluster: ClusterState, run: Allocation, trial: ScheduledTrial | None, at: float) -> None:
        """Record in the cluster state that a gang has committed its first checkpoint, or was requested to exit.

        If either is new, `at` is recorded as its time.
        """
        own = trial is not None and trial.checkpoint and checkpoint_order(trial.checkpoint)[1] == self._numbers[run.key]
        if own and run.committed is None:
            cluster.change(run.key, committed=at)
        if run.leaving is None and (trial is None or trial.state in LEAVING):
            cluster.change(run.key, leaving=at)

    def set_statuses(self, statuses: Iterable[GangStatus]) -> None:
        """Store what engines report about gangs: why some wait in external queues, and which have got their nodes."""
        self.pending = {each.key: each.reason for each in statuses if each.reason}
        self._placed = frozenset(each.key for each in statuses if each.phase != "pending")

    def set_progress(self, key: RequestKey, progress: Progress | None) -> None:
        """Set the measured progress of an elastic gang, if it still holds its slots."""
        if self._cluster is not None and key in self._cluster.runs:
            self._cluster.change(key, progress=progress)

    def asked_to_go(self, attempt: AttemptId) -> float | None:
        """Return when a gang was requested to exit (seconds since the epoch); None if it was not, or holds no slots."""
        key = RequestKey(attempt.experiment, attempt.trial)
        run = self._cluster.runs.get(key) if self._cluster is not None else None
        return run.leaving if run is not None and self._numbers.get(key) == attempt.number else None

    # Requests

    async def _renew(self, cluster: ClusterState, keys: Iterable[RequestKey]) -> None:
        """Update in the cluster state the slot requests of the trials in `keys`, and those of all active searches.

        Requests of searches can change without a change in the store.
        """
        searches = [each for each in self.cache.searches.values() if each.state is ExperimentState.ACTIVE]
        requests, anonymous = await asyncio.to_thread(self._asked, cluster, keys, searches)
        self._unsteady = {key for key, (_, unsteady) in requests.items() if unsteady}
        if cluster.queue.requests or self._released:
            for key, (request, _) in requests.items():
                self._set_request(cluster, key, request)
        else:
            cluster.fill(request for request, _ in requests.values() if request is not None)
        for number, theirs in anonymous.items():
            for nth in range(len(theirs), self._anonymous.get(number, 0)):
                cluster.withdraw(RequestKey(number, ANY_TRIAL, nth))
            for request in theirs:
                cluster.add(request)
        self._anonymous = {number: len(theirs) for number, theirs in anonymous.items() if theirs}

    def _asked(
        self, cluster: ClusterState, keys: Iterable[RequestKey], searches: Iterable[Experiment]
    ) -> tuple[dict[RequestKey, tuple[SlotRequest | None, bool]], dict[int, list[SlotRequest]]]:
        """Compute the current slot requests of the trials in `keys` and of `searches`, and return both. Blocks.

        The first mapping has a pair for each key: the request (None if nothing is requested), and True if it may change
        without a change in the store. The second has the requests of each search, by experiment number.
        """
        requests: dict[RequestKey, tuple[SlotRequest | None, bool]] = {}
        experiments, trials, builder = self.cache.experiments, self.cache.trials, self._request_builder
        for key in keys:
            number, index = key[:2]
            experiment, trial = experiments.get(number), trials.get(number, {}).get(index)
            if experiment is None or trial is None or trial.state is not TrialState.QUEUED or key in cluster.runs:
                requests[key] = None, False
            else:
                request = builder.for_trial(experiment, trial, pools_of(experiment.config, cluster))
                requests[key] = request, builder.may_change(experiment, trial)
        anonymous: dict[int, list[SlotRequest]] = {number: [] for number in self._anonymous}
        for each in searches:
            in_hand, pools = self.cache.live(each.number), pools_of(each.config, cluster)
            anonymous[each.number] = self._request_builder.for_search(each, in_hand, cluster.nodes.values(), pools)
        return requests, anonymous

    def _set_request(self, cluster: ClusterState, key: RequestKey, request: SlotRequest | None) -> None:
        trial = self.cache.trial(*key[:2])
        # A gang that has released its slots may still be requeued until its end is processed.
        unsettled = trial is not None and trial.state in HOLDING_SLOTS
        owed = None if unsettled or key in cluster.runs else self._released.pop(key, None)
        if request is not None:
            cluster.add(request)
            if owed is not None:
                cluster.reservations = (owed, *cluster.reservations)
        elif key.trial != ANY_TRIAL and key in cluster.queue.requests:
            cluster.withdraw(key)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector while the whole store is read: it would scan all records repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # moves all objects to the oldest generation without scanning them
        if enabled:
            gc.enable()


def _pool(cluster: ClusterState, attempt: Attempt) -> str:
    """Return the pool of a gang's nodes; if none of them exists any more, the pool where the gang was started."""
    pools = (cluster.nodes[share.node].pool for share in attempt.placement if share.node in cluster.nodes)
    return next(pools, attempt.pool)


def _differences(accounts: UsageByName, wanted: Mapping[str, Quota]) -> dict[str, Quota]:
    """Return the quotas that must be set in `accounts`, by name, so that they equal `wanted`.

    Accounts that are not in `wanted` get the default quota.
    """
    known = accounts.quotas
    changed = {name: quota for name, quota in wanted.items() if known.get(name, FREE) != quota}
    gone = (name for name in known if isinstance(name, str) and name not in wanted and known[name] != FREE)
    return changed | dict.fromkeys(gone, FREE)


def _windows(accounts: UsageByName) -> set[tuple[object, float]]:
    """Return (account, length of the window in seconds) for each account with a quota of slot-hours."""
    quotas = accounts.quotas.items()
    return {(name, quota.slot_hours.window) for name, quota in quotas if quota.slot_hours is not None}
