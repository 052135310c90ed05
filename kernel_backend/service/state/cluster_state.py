"""Maintain the scheduler's cluster state incrementally.

A round costs what has changed, and a restart gives the same state.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from kernel_backend.engines.base import Engine
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.usage import UsageInterval
from kernel_backend.model.experiment import Experiment, ScheduledExperiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.resources import LOCAL, Node, Placement
from kernel_backend.model.states import HOLDING_SLOTS, AttemptState, ExperimentState, TrialState
from kernel_backend.model.trial import Attempt, ScheduledTrial, checkpoint_order
from kernel_backend.scheduler.decisions import Decisions, Start
from kernel_backend.scheduler.notebook_servers import take_in
from kernel_backend.scheduler.requests import ANY_TRIAL, Allocation, RequestKey, Reservation, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.run_lengths import PastLengths
from kernel_backend.scheduler.state import FREE, ClusterState, UsageByName
from kernel_backend.service.effective_quotas import EffectiveQuotas
from kernel_backend.service.state.requests import RequestBuilder, pool_of
from kernel_backend.service.state.reservations import StoredReservations, reservation
from kernel_backend.service.state.store_cache import RecordChange, StoreCache
from kernel_backend.store.base import Store

FADED = 10  # half-lives after which past use counts for nothing
LEAVING = (TrialState.RELEASING, TrialState.STOPPING)
SET_BACK_S = 5.0  # by which a clock may go back and only be treated as standing still


class ClusterStateManager:
    """Manage one cluster state, which only the event loop changes, one task at a time.

    Code on the event loop that reads it up to the next `await` needs no more than `now`. In a thread it is read
    within `looking`, while it does not change.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        roster: EffectiveQuotas,
        asking: RequestBuilder,
        rules: Rules,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._engine, self._roster, self._asking, self._rules = store, engine, roster, asking, rules
        self._clock = clock
        self._turn = asyncio.Lock()
        self._starting: dict[RequestKey, Start] = {}  # trials whose attempts are being made
        self._begin()

    def _begin(self) -> None:
        self._picture: ClusterState | None = None
        self.mirror = StoreCache(self._store)
        self.lengths = PastLengths()
        self.unaligned: set[int] = set()  # experiments of which something has changed
        self._claims = StoredReservations(self._store)
        self._numbers: dict[RequestKey, int] = {}  # of the attempts that hold slots
        self._owed: dict[RequestKey, Reservation] = {}  # reservations of released gangs, which may be requeued
        self._touched: set[RequestKey] = set()  # whose requests must be updated
        self._unsteady: set[RequestKey] = set()  # whose requests may change by themselves
        self._anonymous: dict[int, int] = {}  # how many requests each search has

    # Reading

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[ClusterState]:
        """Yield the current cluster state, which does not change meanwhile."""
        async with self._turn:
            yield await self._current()

    async def now(self) -> ClusterState:
        """Return the current cluster state."""
        async with self.looking() as picture:
            return picture

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[ClusterState]:
        """Yield the state for a decision, after a short wait for first answers about users' files.

        Users whose files answer in time keep their position, also after a restart; a slow disk or agent delays no
        other user.
        """
        async with self.looking() as picture:
            if not self._asking.unsettled:
                yield picture
                return
        await self._asking.settle()  # the state may be read meanwhile
        async with self.looking() as picture:
            yield picture

    def asks_of(self, experiment: int) -> list[SlotRequest]:
        """Return the slot requests of an experiment, in order."""
        if self._picture is None:
            return []
        asks = self._picture.queue.asks
        keys = [RequestKey(experiment, index) for index in self.mirror.trials.get(experiment, {})]
        keys += [RequestKey(experiment, ANY_TRIAL, nth) for nth in range(self._anonymous.get(experiment, 0))]
        return sorted((asks[key] for key in keys if key in asks), key=lambda ask: ask.order)

    async def _current(self) -> ClusterState:
        try:
            if self._picture is not None and self._clock() < self._picture.at - SET_BACK_S:
                self._begin()  # its time would stand still until then, and with it all backoff and time limits
            nodes = [self._with_drain(node) for node in await self._engine.nodes()]
            if self._picture is None:
                with _no_collection():
                    self._picture = await self._begun(nodes)
                return self._picture
            changes = await asyncio.to_thread(self.mirror.read)
            picture = self._picture
            picture.pass_to(self._clock())
            self._set_nodes(picture, nodes)
            await self._set_quotas(picture)
            for change in changes:
                self._take_in(picture, change)
            take_in(picture, self._roster.servers)
            keys, self._touched = self._touched | self._unsteady, set()
            await self._renew(picture, keys)
            return picture
        except BaseException:
            self._begin()  # half a change may have been applied: the next reader begins anew
            raise

    # What was decided

    def decided(self, picture: ClusterState, decisions: Decisions) -> None:
        """Apply the new reservations; a started request keeps its own until it holds its slots."""
        starting = (start.reservation for start in decisions.starts)
        picture.reservations = (*(each for each in starting if each is not None), *decisions.reservations)

    @asynccontextmanager
    async def starting(self, key: RequestKey, start: Start) -> AsyncIterator[None]:
        """Create a trial's attempt within this context: its reservation outlives this service.

        If it cannot be created, the reservation is restored.
        """
        before, kept = self._picture, start.reservation
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
            if kept is not None and self._picture is not None:
                self._picture.reservations = (kept, *self._picture.reservations)
            raise

    async def keep(self) -> None:
        """Store what has been committed."""
        if self._picture is not None:
            await self._claims.keep(self._picture, self._starting)

    def align_all(self) -> None:
        """Mark all experiments for reconciliation: something has failed, or could change what any of them may have."""
        self.unaligned |= self.mirror.experiments.keys()

    def look_again(self, key: RequestKey) -> None:
        """Update a request for a reason that is not in the store."""
        self._touched.add(key)

    # Rebuilding

    async def _begun(self, nodes: Iterable[Node]) -> ClusterState:
        self.mirror.take_in(await asyncio.to_thread(self.mirror.read))
        picture = await self._afresh(nodes)
        # In the order of the cache, where neighbours lie together in memory: of 100,000 that is quicker than any other.
        await self._renew(picture, [RequestKey(number, nth) for number, of in self.mirror.trials.items() for nth in of])
        self._claims.restore(picture)
        return picture

    async def _afresh(self, nodes: Iterable[Node]) -> ClusterState:
        users, groups = self._roster.users, self._roster.groups
        picture = ClusterState(
            nodes, at=self._clock(), users=users, groups=groups, rules=self._rules, lengths=self.lengths
        )
        spells, _ = await asyncio.gather(
            asyncio.to_thread(self._store.spells, self._horizon(picture)), asyncio.to_thread(self._claims.read)
        )
        for attempt in sorted(self.mirror.attempts.values(), key=lambda each: each.created_at):
            experiment = self.mirror.experiments.get(attempt.experiment)
            if experiment is None:  # it has ended, and this is still to be closed
                experiment = await asyncio.to_thread(self._ended, attempt.experiment)
            self._hold(picture, attempt, experiment, charged=True)
        take_in(picture, self._roster.servers)
        picture.charge(self._lasting(picture, spells))
        for spell in spells:
            self.lengths.add(spell.owner, spell.slots, spell.begun, spell.ended, spell.outcome)
            if spell.attempt.experiment in self.mirror.searches:
                self._asking.got(spell.attempt.experiment, spell.begun)
        self.align_all()
        return picture

    def _ended(self, number: int) -> Experiment | None:
        """Return an ended experiment whose attempts still hold slots; None where it cannot be read."""
        try:
            return self._store.experiment(number)
        except (ValueError, TypeError):
            return None  # the slots of its gangs are taken all the same

    def _horizon(self, picture: ClusterState) -> float:
        """Return the time from which on past use matters."""
        quotas = [*picture.users.quotas.values(), *picture.groups.quotas.values()]
        longest = max((each.slot_hours.window for each in quotas if each.slot_hours is not None), default=0.0)
        return picture.at - max(FADED * self._rules.half_life, longest)

    def _lasting(self, picture: ClusterState, spells: Iterable[UsageInterval]) -> Iterator[UsageInterval]:
        """Yield the intervals as the cluster state has them: those that hold slots in it have no end yet."""
        for spell in spells:
            holds = self._numbers.get(RequestKey(spell.attempt.experiment, spell.attempt.trial)) == spell.attempt.number
            if holds:
                yield spell._replace(ended=None)
            elif spell.ended is not None:
                yield spell

    # Nodes and quotas

    def _with_drain(self, node: Node) -> Node:
        drained = node.name in self._roster.drained
        return node.model_copy(update={"drained": True}) if drained and not node.drained else node

    def _set_nodes(self, picture: ClusterState, nodes: Sequence[Node]) -> None:
        known = picture.nodes
        # By identity first: records are compared field by field, and there may be thousands.
        changed = [node for node in nodes if (old := known.get(node.name)) is not node and old != node]
        gone = picture.nodes.keys() - {node.name for node in nodes}
        for node in changed:
            picture.set_node(node)
        for name in gone:
            picture.remove_node(name)
        if changed or gone:
            self.align_all()  # what could be placed cannot, or the other way round

    async def _set_quotas(self, picture: ClusterState) -> None:
        users = _differences(picture.users, self._roster.users)
        groups = _differences(picture.groups, self._roster.groups)
        if not users and not groups:
            return
        windows = _windows(picture.users) | _windows(picture.groups)
        for accounts, quotas in ((picture.users, users), (picture.groups, groups)):
            for name, quota in quotas.items():
                accounts.set(name, quota)
        if (_windows(picture.users) | _windows(picture.groups)) - windows:
            spells = await asyncio.to_thread(self._store.spells, self._horizon(picture))
            picture.charge(self._lasting(picture, spells))
        for ask in list(picture.queue):
            if ask.owner in users or ask.group in groups:
                self._touched.add(ask.key)  # its priority may have changed
        self.align_all()

    # Changes from the store

    def _take_in(self, picture: ClusterState, change: RecordChange) -> None:
        record = change.record
        self.mirror.take_in([change])
        match record:
            case ScheduledExperiment():
                self.unaligned.add(record.number)
                self._touched |= {
                    RequestKey(record.number, index) for index in self.mirror.trials.get(record.number, {})
                }
            case ScheduledTrial():
                self.unaligned.add(record.experiment)
                key = RequestKey(record.experiment, record.index)
                self._touched.add(key)
                if key in picture.runs:
                    self._watch(picture, picture.runs[key], record, change.at)
            case Attempt():
                self._take_in_attempt(picture, record)

    def _take_in_attempt(self, picture: ClusterState, attempt: Attempt) -> None:
        key = RequestKey(attempt.experiment, attempt.trial)
        holds, known = attempt.state is not AttemptState.ENDED, self._numbers.get(key, 0)
        if known > attempt.number or (known == attempt.number and holds):
            return
        self._touched.add(key)
        if known:
            ended = attempt.created_at if attempt.ended_at is None or known < attempt.number else attempt.ended_at
            run = picture.let_go(key, at=ended)
            del self._numbers[key]
            self.lengths.add(run.owner, run.slots, run.since, ended, attempt.outcome)
            if run.reservation is not None:
                self._owed[key] = run.reservation
        if holds:
            self._hold(picture, attempt, self.mirror.experiments[attempt.experiment])
            if attempt.experiment in self.mirror.searches:
                self._asking.got(attempt.experiment, attempt.created_at)

    def _hold(
        self, picture: ClusterState, attempt: Attempt, experiment: ScheduledExperiment | None, *, charged: bool = False
    ) -> None:
        key = RequestKey(attempt.experiment, attempt.trial)
        start, claim, trial = self._starting.pop(key, None), self._claims.of(key), self.mirror.trial(*key[:2])
        promised: dict[str, Any] = {}
        if start is not None:
            promised = {"passed": start.passed, "reservation": start.reservation}
        elif claim is not None:
            promised = {"passed": claim.passed, "reservation": reservation(claim), "committed": claim.committed}
            asked = claim.leaving is not None and claim.leaving >= attempt.created_at  # and not the attempt before
            if asked and trial is not None and trial.state in LEAVING:
                promised["leaving"] = claim.leaving
        max_time = experiment.config.max_time if experiment is not None else None
        run = Allocation(
            key,
            attempt.placement,
            attempt.created_at,
            experiment.owner if experiment is not None else "",
            experiment.group if experiment is not None else "",
            _pool(picture, attempt.placement),
            ends=None if max_time is None else attempt.created_at + max_time,
            **promised,
        )
        self._numbers[key] = attempt.number
        picture.hold(run, charged=charged)
        self._watch(picture, run, trial, self._clock())

    def _watch(self, picture: ClusterState, run: Allocation, trial: ScheduledTrial | None, at: float) -> None:
        """Record a gang's first checkpoint, and that it was asked to leave."""
        own = trial is not None and trial.checkpoint and checkpoint_order(trial.checkpoint)[1] == self._numbers[run.key]
        if own and run.committed is None:
            picture.change(run.key, committed=at)
        if run.leaving is None and (trial is None or trial.state in LEAVING):
            picture.change(run.key, leaving=at)

    def asked_to_go(self, attempt: AttemptId) -> float | None:
        """Return when its gang was asked to leave, by this service or one before it."""
        key = RequestKey(attempt.experiment, attempt.trial)
        run = self._picture.runs.get(key) if self._picture is not None else None
        return run.leaving if run is not None and self._numbers.get(key) == attempt.number else None

    # Requests

    async def _renew(self, picture: ClusterState, keys: Iterable[RequestKey]) -> None:
        """Update requests that may have changed, and those of searches, which change without a record in the store."""
        searches = [each for each in self.mirror.searches.values() if each.state is ExperimentState.ACTIVE]
        asks, anonymous = await asyncio.to_thread(self._asked, picture, keys, searches)
        self._unsteady = {key for key, (_, unsteady) in asks.items() if unsteady}
        if picture.queue.asks or self._owed:
            for key, (ask, _) in asks.items():
                self._ask(picture, key, ask)
        else:
            picture.fill(ask for ask, _ in asks.values() if ask is not None)
        for number, theirs in anonymous.items():
            for nth in range(len(theirs), self._anonymous.get(number, 0)):
                picture.withdraw(RequestKey(number, ANY_TRIAL, nth))
            for ask in theirs:
                picture.add(ask)
        self._anonymous = {number: len(theirs) for number, theirs in anonymous.items() if theirs}

    def _asked(
        self, picture: ClusterState, keys: Iterable[RequestKey], searches: Iterable[Experiment]
    ) -> tuple[dict[RequestKey, tuple[SlotRequest | None, bool]], dict[int, list[SlotRequest]]]:
        """Return each key's current request and whether it may change by itself, and those of searches. Blocks."""
        asks: dict[RequestKey, tuple[SlotRequest | None, bool]] = {}
        for key in keys:
            experiment, trial = (
                self.mirror.experiments.get(key.experiment),
                self.mirror.trial(key.experiment, key.trial),
            )
            waits = trial is not None and trial.state is TrialState.QUEUED and key not in picture.runs
            if experiment is None or trial is None or not waits:
                asks[key] = None, False
            else:
                ask = self._asking.for_trial(experiment, trial, pool_of(experiment.config, picture))
                asks[key] = ask, self._asking.may_change(experiment, trial)
        anonymous: dict[int, list[SlotRequest]] = {number: [] for number in self._anonymous}
        for each in searches:
            in_hand, pool = self.mirror.live(each.number), pool_of(each.config, picture)
            anonymous[each.number] = self._asking.for_search(each, in_hand, picture.nodes.values(), pool)
        return asks, anonymous

    def _ask(self, picture: ClusterState, key: RequestKey, ask: SlotRequest | None) -> None:
        trial = self.mirror.trial(*key[:2])
        # One that has released its slots and whose end is not settled yet may still be requeued.
        unsettled = trial is not None and trial.state in HOLDING_SLOTS
        owed = None if unsettled or key in picture.runs else self._owed.pop(key, None)
        if ask is not None:
            picture.add(ask)
            if owed is not None:
                picture.reservations = (owed, *picture.reservations)
        elif key.trial != ANY_TRIAL and key in picture.queue.asks:
            picture.withdraw(key)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector while a whole store is read: it would scan all records again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # all are in the oldest generation now, without a scan of each
        if enabled:
            gc.enable()


def _pool(picture: ClusterState, placement: Placement) -> str:
    """Return the pool of a gang; nodes that are gone are taken to be local."""
    pools = (picture.nodes[share.node].pool for share in placement if share.node in picture.nodes)
    return next(pools, LOCAL)


def _differences(accounts: UsageByName, wanted: Mapping[str, Quota]) -> dict[str, Quota]:
    """Return the quotas that have changed; accounts that are no longer named get the free one."""
    known = accounts.quotas
    changed = {name: quota for name, quota in wanted.items() if known.get(name, FREE) != quota}
    gone = (name for name in known if isinstance(name, str) and name not in wanted and known[name] != FREE)
    return changed | dict.fromkeys(gone, FREE)


def _windows(accounts: UsageByName) -> set[tuple[object, float]]:
    """Return how far back the meter of each account must look."""
    quotas = accounts.quotas.items()
    return {(name, quota.slot_hours.window) for name, quota in quotas if quota.slot_hours is not None}
