"""Compare the running gangs with the store in rounds, and act on the differences: observe, decide, apply.

The first round after a start of the service recovers what earlier services have left.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from functools import partial

from kernel_backend.engines.base import GangStatus
from kernel_backend.lifecycle.reconcile import Action, reconcile, terminal_event
from kernel_backend.model import events as e
from kernel_backend.model.experiment import Experiment, ScheduledExperiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.search.effects import Moved
from kernel_backend.model.states import HOLDING_SLOTS, LIVE, AttemptState, ExperimentState, Outcome, TrialState
from kernel_backend.model.trial import Attempt, ScheduledTrial
from kernel_backend.scheduler.budgets import used_up
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Preempt
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.checkpoint_copies import CheckpointCopies
from kernel_backend.service.context import Context
from kernel_backend.service.garbage import collect
from kernel_backend.service.isolation import IsolatedTasks, Work
from kernel_backend.service.loop.allocation_review import AllocationReview
from kernel_backend.service.loop.elastic_review import ElasticReview
from kernel_backend.service.loop.ends import AttemptEnder
from kernel_backend.service.loop.starts import AttemptStarter
from kernel_backend.service.notebook_servers import Notebooks
from kernel_backend.service.notifier import wait_for
from kernel_backend.service.search.runner import Searches
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import plain_request, pools_of
from kernel_backend.service.state.site_queues import admitted
from kernel_backend.spec.config_text import duration_word

BUSY_S = 0.2  # between rounds while gangs run
FAILED_S = 2.0  # after a failed round, and at most if any work is to be retried
IDLE_S = 30.0  # while no gang runs; API operations wake the loop earlier
TOGETHER = 100  # trials advanced per transaction: one commit each is slow, one for all keeps other writers waiting
OPEN = LIVE | {TrialState.PAUSED}
GOING_ON = (TrialState.STARTING, TrialState.RUNNING)
_PREEMPTED = {
    "exit": "was preempted: {}; it resumes when slots are free",
    "shrink": "shrinks: {}; it goes on with fewer slots",
    "grow": "grows: {}",
}


class Loop:
    """Control loop of the service, which alone starts and ends attempts."""

    def __init__(
        self,
        context: Context,
        cluster_state: ClusterStateManager,
        searches: Searches,
        notebooks: Notebooks,
        checkpoint_copies: CheckpointCopies,
        starts: AttemptStarter,
        ends: AttemptEnder,
    ) -> None:
        self._store, self._engine, self._storage = context.store, context.engines, context.checkpoint_storage
        self._bus, self._wake, self.wake = context.bus, context.next_round, context.wake
        self.cluster_state, self.searches, self.notebooks = cluster_state, searches, notebooks
        self._checkpoint_copies, self._starts, self._ends = checkpoint_copies, starts, ends
        self._allocations = AllocationReview(context.engines, cluster_state)
        self._elastic = ElasticReview(context.store, context.site_loads, cluster_state)
        self._isolated = IsolatedTasks(self.wake, cluster_state.reconcile_all)
        self.settling = asyncio.Lock()  # held while experiments are being ended
        self._rounded = time.monotonic()
        self._own: set[AttemptId] = set()  # attempts whose running gang was verified to be their own

    async def run(self) -> None:
        """Run rounds until cancelled; after an error, which is logged, the next round tries again."""
        self._checkpoint_copies.lookups.start()
        try:
            while True:
                self._wake.clear()
                pause = FAILED_S
                with self._isolated.errors("this round"):
                    pause = BUSY_S if await self.round() else IDLE_S
                await wait_for(self._wake, min(pause, FAILED_S) if self._isolated.troubled else pause)
        finally:
            self._isolated.cancel()
            self._ends.cancel()
            self._starts.cancel()

    async def round(self) -> bool:
        """Bring running gangs and the store into agreement once; return whether the next round should follow soon.

        That is so while any attempt or trial must still end, any experiment has neither ended nor been paused, or a
        search keeps an allocation.
        """
        await self.cluster_state.now()
        statuses = {status.key: status for status in await self._engine.statuses()}
        self.cluster_state.set_statuses([*statuses.values()])
        busy = await self._look_at_gangs(statuses)
        await self._end_times()
        busy |= await self._reconcile()
        with self._isolated.errors("the progress of elastic gangs"):
            await self._elastic.review()
        await self._start_queued()
        busy |= await self._allocations.review()
        await self.cluster_state.keep()
        self._rounded = time.monotonic()
        return busy

    def round_age(self) -> float:
        """Return the seconds since the last complete round, or since the loop was created."""
        return time.monotonic() - self._rounded

    # Running gangs

    async def _look_at_gangs(self, statuses: dict[AttemptId, GangStatus]) -> bool:
        """End the attempts whose gangs have ended, and advance the trials of ended attempts to their next states.

        Gangs that belong to no attempt are killed. Return whether any attempt has not ended, or has a trial that must
        still be advanced.
        """
        attempts, unsettled = self.cluster_state.cache.open_attempts, list(self.cluster_state.cache.unsettled.values())
        work: defaultdict[int, list[tuple[str, Work]]] = defaultdict(list)
        self._own &= {attempt.id for attempt in attempts}
        for attempt in attempts:
            status = statuses.pop(attempt.id, None)
            if not self._goes_on(attempt, status):
                observe = partial(self._observe, attempt, status)
                work[attempt.experiment].append((f"attempt {attempt.id}", observe))
        for attempt in unsettled:
            status = statuses.pop(attempt.id, None)
            settle = partial(self._ends.settle, attempt, status.result if status else None)
            work[attempt.experiment].append((f"the end of attempt {attempt.id}", settle))
        for key in statuses:
            work[key.experiment].append((f"unknown gang {key}", partial(self._ends.remove_unknown, key)))
        await self._isolated.together(work)
        return bool(attempts or unsettled)

    def _goes_on(self, attempt: Attempt, status: GangStatus | None) -> bool:
        trial = self.cluster_state.cache.trial(attempt.experiment, attempt.trial)
        wanted = trial is not None and trial.attempt == attempt.number and trial.state in GOING_ON
        known = status is not None and (not status.token_digest or attempt.id in self._own)
        return wanted and known and status is not None and status.phase != "ended"

    async def _is_own(self, attempt: Attempt, status: GangStatus) -> bool:
        """Return whether a running gang was started for this attempt, not for another one with the same number.

        There may be another if a database was lost and an older copy restored: then a new attempt can get the number of
        a gang that was started before the loss.
        """
        if not status.token_digest or attempt.id in self._own:
            return True
        if status.token_digest != await asyncio.to_thread(self._store.token_digest, attempt.id):
            return False
        self._own.add(attempt.id)
        return True

    async def _observe(self, attempt: Attempt, status: GangStatus | None) -> None:
        attempt = await asyncio.to_thread(self._store.attempt, attempt.id)
        if attempt.state is AttemptState.ENDED:  # it ended after this round began
            return
        if status is not None and not await self._is_own(attempt, status):
            await self._ends.set_aside(attempt.id)  # the next round finds this attempt's own gang missing
            return
        trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
        if trial.attempt != attempt.number or trial.state not in HOLDING_SLOTS:
            # Its trial has advanced, but the service died before it closed the attempt.
            seen = status or GangStatus(key=attempt.id, phase="ended")
            await self._ends.close(attempt, seen.outcome or Outcome.LOST, seen.result.failure if seen.result else None)
        elif status is None:
            await self._ends.end(attempt, Outcome.LOST, None)
        elif status.phase == "ended":
            outcome = Outcome.KILLED if trial.state is TrialState.STOPPING else status.outcome or Outcome.LOST
            await self._ends.end(attempt, outcome, status.result)
        elif trial.state in (TrialState.RELEASING, TrialState.STOPPING):
            await self._ends.see_off(trial, attempt, self.cluster_state.asked_to_go(attempt.id))

    async def _end_times(self) -> None:
        """Pause experiments whose `--max-time` has passed; their gangs commit a checkpoint first."""
        cluster = await self.cluster_state.now()
        for run in [run for run in cluster.runs.values() if run.ends is not None and run.ends <= cluster.at]:
            trial = self.cluster_state.cache.trial(run.key.experiment, run.key.trial)
            experiment = self.cluster_state.cache.experiments.get(run.key.experiment)
            active = experiment is not None and experiment.state is ExperimentState.ACTIVE
            if experiment is None or trial is None or not active or trial.state not in GOING_ON:
                continue
            with self._isolated.errors(f"the time of {run.key}"):
                length, number = duration_word(experiment.config.max_time or 0.0), experiment.number
                note = f"paused: its --max-time of {length} is over; daylight resume {number} gives it as long again"
                key = AttemptId(number, trial.index, trial.attempt)
                await asyncio.to_thread(self._store.note, key, note, time.time())
                await asyncio.to_thread(self._store.advance_experiment, number, e.Paused(), time.time())
                self._bus.notify()

    # Reconciling trials with their experiments

    async def _reconcile(self) -> bool:
        """Advance the trials of all changed experiments to match the experiments' states.

        Return whether any experiment has neither ended nor been paused.
        """
        async with self.settling:
            cluster = await self.cluster_state.now()
            cache = self.cluster_state.cache
            numbers = sorted((self.cluster_state.unaligned | cache.searches.keys()) & cache.experiments.keys())
            self.cluster_state.unaligned.intersection_update(numbers)  # the others have ended
            for nth, experiment in enumerate([cache.experiments[number] for number in numbers], 1):
                if nth % TOGETHER == 0:
                    await asyncio.sleep(0)  # lets API requests be answered in between
                what = f"experiment #{experiment.number}"
                if self._isolated.under_way(experiment.number) or not self._isolated.due(what):
                    continue
                self.cluster_state.unaligned.discard(
                    experiment.number
                )  # cleared first, so that changes made meanwhile mark the experiment again
                with self._isolated.errors(what):
                    if not self._is_reconciled(experiment, cluster):
                        await self._reconcile_one(experiment, cluster)
        return any(experiment.state != "paused" for experiment in cache.experiments.values())

    def _is_reconciled(self, experiment: ScheduledExperiment, cluster: ClusterState) -> bool:
        """Return whether no trial of an experiment needs an action, judged by cached records without reading the store.

        This keeps rounds fast with 100,000 experiments, as after a restart. Always False for searches.
        """
        trials = self.cluster_state.cache.trials.get(experiment.number)
        if experiment.config.search is not None or not trials:  # an experiment without cached trials may have ended
            return False
        return not any(_action(cluster, experiment, each) for each in trials.values())

    async def _reconcile_one(self, experiment: ScheduledExperiment, cluster: ClusterState) -> None:
        """Advance the trials of an experiment to match the experiment's state; end it when all trials have ended."""
        # Trials that their search has paused need no action unless the experiment ends; there may be thousands.
        ending = experiment.state is ExperimentState.STOPPING
        read = partial(self._store.trials, states=OPEN) if ending else self._store.restless_trials
        moves = [
            Moved(trial.index, action.event, action.changes)
            for trial in await asyncio.to_thread(read, experiment.number)
            if (action := _action(cluster, experiment, trial))
        ]
        for begin in range(0, len(moves), TOGETHER):
            some = moves[begin : begin + TOGETHER]
            await asyncio.to_thread(self._store.record, experiment.number, (), some, at=time.time())
            self._bus.notify()
        search = self.cluster_state.cache.searches.get(experiment.number)
        over = await self._search_over(search) if search is not None else None
        counts = await asyncio.to_thread(self._store.trial_counts, experiment.number)
        failed = await asyncio.to_thread(self.searches.failed, search) if search is not None and over else None
        event = terminal_event(experiment.state, counts, over, failed=failed is not None)
        if event is not None and (search is None or self.searches.leave(search)):
            ended = await asyncio.to_thread(self._store.advance_experiment, experiment.number, event, time.time())
            self._bus.notify()
            self.searches.forget(experiment.number)
            tidy = partial(self._tidy, ended)
            await self._isolated.retried(ended.number, f"the checkpoints of experiment #{ended.number}", tidy)

    async def _tidy(self, ended: Experiment) -> None:
        await asyncio.to_thread(collect, self._store, self._storage, ended, time.time())

    async def _search_over(self, experiment: Experiment) -> bool | None:
        """Have a search process new reports; return whether it has ended, or None if the experiment is no search.

        A search whose budget or time limit is used up is closed first.
        """
        search, now = experiment.config.search, time.time()
        if search is None:
            return None
        if await asyncio.to_thread(self.searches.take_news, experiment):
            self._bus.notify()
        spent = search.budget and await asyncio.to_thread(self._store.slot_seconds, experiment.number, now)
        limit = used_up(search, spent or 0.0, now - experiment.created_at)
        if limit is not None:
            await asyncio.to_thread(self.searches.close, experiment, limit)
        return await asyncio.to_thread(self.searches.over, experiment)

    # Starting and preempting gangs

    async def _start_queued(self) -> None:
        async with self.cluster_state.settled() as cluster:
            decisions = decide(cluster)
            self.cluster_state.decided(cluster, decisions)
        launches: defaultdict[int, list[tuple[str, Work]]] = defaultdict(list)
        free = [start for start in decisions.starts if not self._isolated.under_way(start.request.experiment)]
        free = admitted(free, self._engine.most_waiting(), self.cluster_state.cache)
        for start in await self._starts.look(free):
            with self._isolated.errors(f"the start of {start.request.experiment}.{start.request.trial}"):
                if (launch := await self._starts.start(start)) is not None:
                    launches[launch[0]].append(launch[1:])
        await self._isolated.together(launches)
        for preempt in decisions.preempts:
            with self._isolated.errors(f"the leave of {preempt.run.key}"):
                if preempt.run.key.server:
                    await self.notebooks.take_back(cluster, preempt)
                else:
                    await self._put_aside(preempt)

    async def _put_aside(self, preempt: Preempt) -> None:
        """Preempt a gang: request that it commits a checkpoint and exits, for others or to change its number of slots.

        The trial is requeued at its earlier place in the queue; unlike a paused trial, it needs no `resume`.
        """
        number, index = preempt.run.key.experiment, preempt.run.key.trial
        trial = await asyncio.to_thread(self._store.trial, number, index)
        if trial.state not in (TrialState.STARTING, TrialState.RUNNING):
            return
        await asyncio.to_thread(self._store.advance_trial, number, index, e.Release(), time.time())
        note = f"attempt {trial.attempt} {_PREEMPTED[preempt.change].format(preempt.reason)}"
        key = AttemptId(number, index, trial.attempt)
        await asyncio.to_thread(self._store.note, key, note, time.time())
        self._bus.notify()
        await self._allocations.preempted(key, preempt.reason)


def _action(cluster: ClusterState, experiment: ScheduledExperiment, trial: ScheduledTrial) -> Action | None:
    """Return the action that brings a trial towards its experiment's state; None if none is needed."""
    possible = impossible(cluster, plain_request(experiment, trial, pools_of(experiment.config, cluster))) is None
    pools = experiment.config.pools if trial.state in GOING_ON else ()
    run = cluster.runs.get(RequestKey(experiment.number, trial.index)) if pools else None
    return reconcile(experiment.state, trial, possible, misplaced=run is not None and run.pool not in pools)
