"""The loop: look at the engine and the store, ask for decisions, apply them. Recovering is its first round."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kernel_backend.areas.base import Areas
from kernel_backend.checkpoints.places import Places
from kernel_backend.engines.base import Engine, GangStatus, Unconfirmed
from kernel_backend.errors import DaylightError, NotFound
from kernel_backend.model import events as e
from kernel_backend.model.effects import Moved
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.spelling import duration_word
from kernel_backend.model.states import HOLDING_SLOTS, LIVE, ExperimentState, Outcome, TrialState
from kernel_backend.model.trial import Attempt, Failure, Trial
from kernel_backend.scheduler.align import align, settled
from kernel_backend.scheduler.asks import ANY_TRIAL, Key
from kernel_backend.scheduler.budgets import used_up
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Preempt, Start
from kernel_backend.scheduler.endings import ending
from kernel_backend.scheduler.picture import Picture
from kernel_backend.scheduler.possible import impossible
from kernel_backend.scheduler.resume import progressed, resume_point
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.askers import ExperimentAsker
from kernel_backend.service.asking import Asking, plain_ask, pool_of
from kernel_backend.service.beginnings import Beginnings
from kernel_backend.service.bus import Bus, heard
from kernel_backend.service.collect import collect
from kernel_backend.service.jobs import digest, job_of
from kernel_backend.service.notebooks import Notebooks, Servers
from kernel_backend.service.pictures import Pictures
from kernel_backend.service.preparation import Preparation
from kernel_backend.service.roster import Roster
from kernel_backend.service.searches import Searches
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Store

BUSY_S = 0.2  # between rounds while gangs run
FAILED_S = 2.0  # after one in which something failed
IDLE_S = 30.0  # and while none does; a verb rings the bell
STOP_GRACE_S = 30.0  # what a gang gets to go when its work ends for good; else it is a rule of the scheduler's
MOMENT_S = 1.0  # that a round waits for files and gangs of an experiment, before it goes on without
TOGETHER = 100  # trials that are moved in one write: a commit each is slow, and all at once keep other writers out
OPEN = LIVE | {TrialState.PAUSED}
GOING_ON = (TrialState.STARTING, TrialState.RUNNING)

_log = logging.getLogger(__name__)


class Loop:
    """One task that alone starts and ends attempts."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        archive: Archive,
        places: Places,
        areas: Areas,
        home: Path,
        bus: Bus,
        roster: Roster,
        rules: Rules,
        url: str | None = None,
        servers: Servers | None = None,
    ) -> None:
        """`roster` says who may have what; `servers` are those of notebooks, where a hub has some."""
        self._store, self._engine, self._archive, self._bus = store, engine, archive, bus
        self._places, self._areas, self._home, self._url = places, areas, home, url
        self.preparation = Preparation(archive, areas, self.wake)
        self.beginnings = Beginnings(places, self.wake)
        asker = partial(ExperimentAsker, archive=archive, preparation=self.preparation, areas=areas)
        self.searches = Searches(store, asker)
        self._asking = Asking(store, self.searches, self.preparation, self.beginnings)
        self._rules = rules
        self.pictures = Pictures(store, engine, roster, self._asking, rules)
        self.notebooks = Notebooks(store, roster, servers, self.wake)
        self._asked: dict[AttemptId, float] = {}  # when a gang was asked to leave
        self.settling = asyncio.Lock()  # held while experiments are brought to their ends
        self._under_way: dict[int, asyncio.Task[None]] = {}  # what is being done about experiments
        self._wake = asyncio.Event()
        self._failed = False  # something in this round

    def wake(self) -> None:
        """Have the next round now."""
        self._wake.set()

    async def run(self) -> None:
        """Round after round, until cancelled. An error is logged and tried again: the next round sees the same."""
        self.beginnings.start()
        try:
            while True:
                self._wake.clear()
                self._failed, busy = False, True
                with self._apart("this round"):
                    busy = await self.round()
                await heard(self._wake, FAILED_S if self._failed else BUSY_S if busy else IDLE_S)
        finally:
            for task in list(self._under_way.values()):
                task.cancel()

    async def round(self) -> bool:
        """Bring the world and the store together once; whether anything is going on."""
        await self.pictures.now()
        statuses = {status.key: status for status in await self._engine.statuses()}
        attempts = self.pictures.mirror.open_attempts
        for attempt in attempts:
            status = statuses.pop(attempt.id, None)
            await self._patiently(attempt.experiment, f"attempt {attempt.id}", partial(self._observe, attempt, status))
        for key in statuses:
            await self._patiently(key.experiment, f"unknown gang {key}", partial(self._remove_stranger, key))
        await self._end_times()
        busy = await self._align()
        await self._start_queued()
        await self.pictures.keep()
        return busy or bool(attempts)

    async def _patiently(self, number: int, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do what an experiment's files, or its gang, are needed for: should these let us wait, rounds go on without.

        Until it is done nothing else is done about that experiment.
        """
        if number in self._under_way:
            return
        task = self._under_way[number] = asyncio.create_task(self._work(what, work), name=what)
        task.add_done_callback(lambda _: self._under_way.pop(number, None))
        await asyncio.wait({task}, timeout=MOMENT_S)
        if not task.done():
            task.add_done_callback(lambda _: self.wake())

    async def _work(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._apart(what):
            await work()

    @contextlib.contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """Keep an error from everything but what it befell: it is logged, and the next round tries again."""
        try:
            yield
        except Exception as error:
            expected = isinstance(error, DaylightError)
            _log.error("%s: %s; this is tried again", what, error, exc_info=None if expected else error)
            self._failed = True
            self.pictures.align_all()

    # What runs

    async def _observe(self, attempt: Attempt, status: GangStatus | None) -> None:
        known = self.pictures.mirror.trial(attempt.experiment, attempt.trial)
        goes_on = known is not None and known.attempt == attempt.number and known.state in GOING_ON
        if goes_on and status is not None and status.phase != "ended":
            return
        trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
        if trial.attempt != attempt.number or trial.state not in HOLDING_SLOTS:
            # Its trial has moved on (this service died between two writes): only the attempt is left to close.
            seen = status or GangStatus(key=attempt.id, phase="ended")
            await self._close(attempt, seen.outcome or Outcome.LOST, seen.result.failure if seen.result else None)
        elif status is None:
            await self._end(trial, attempt, Outcome.LOST, None)
        elif status.phase == "ended":
            outcome = Outcome.KILLED if trial.state is TrialState.STOPPING else status.outcome or Outcome.LOST
            await self._end(trial, attempt, outcome, status.result)
        elif trial.state in (TrialState.RELEASING, TrialState.STOPPING):
            await self._see_off(trial, attempt)

    async def _see_off(self, trial: Trial, attempt: Attempt) -> None:
        """Ask a gang to leave, and make it when its grace is over."""
        asked = self._asked.get(attempt.id)
        if asked is None:
            self._asked[attempt.id] = time.monotonic()
            await self._engine.release(attempt.id)
            return
        grace = STOP_GRACE_S if trial.state is TrialState.STOPPING else self._rules.grace
        if time.monotonic() - asked > grace:
            with contextlib.suppress(Unconfirmed):
                await self._engine.kill(attempt.id)

    async def _end(self, trial: Trial, attempt: Attempt, outcome: Outcome, result: AttemptResult | None) -> None:
        """Take in what the gang still had to say, make sure that it is gone, and move its trial on."""
        left = await self._engine.records(attempt.id, attempt.accepted)
        if left:
            await asyncio.to_thread(self._store.accept, attempt.id, left, time.time())
            await self._hear(attempt.experiment)
        try:
            await self._engine.kill(attempt.id)
        except Unconfirmed as error:
            _log.warning("%s", error)
            return
        trial = await asyncio.to_thread(self._store.trial, trial.experiment, trial.index)
        experiment = await asyncio.to_thread(self._store.experiment, trial.experiment)
        failure = result.failure if result else None
        matched = result.matched if result else ()
        progress = progressed(*await asyncio.to_thread(self._history, trial.experiment, trial.index))
        what = ending(trial, attempt, outcome, failure, progress, experiment.config.max_restarts, matched)
        for note in what.notes:
            await asyncio.to_thread(self._store.note, attempt.id, note, time.time())
        if what.pause and experiment.state is ExperimentState.ACTIVE:
            # First of the two: a service that dies between them comes to the same end again, and does the other.
            await asyncio.to_thread(self._store.advance_experiment, experiment.number, e.Paused(), time.time())
        if what.final and result and result.preparing and failure and experiment.config.search is not None:
            await asyncio.to_thread(self.searches.unprepared, experiment, trial.index, failure)
        await asyncio.to_thread(
            self._store.advance_trial, trial.experiment, trial.index, what.event, time.time(), **what.changes
        )
        await self._close(attempt, outcome, failure)

    async def _hear(self, number: int) -> None:
        """Have a search decide on what its trials have said: before one of them goes any way."""
        experiment = await asyncio.to_thread(self._store.experiment, number)
        if experiment.config.search is not None:
            await asyncio.to_thread(self.searches.hear, experiment)

    async def _close(self, attempt: Attempt, outcome: Outcome, failure: Failure | None) -> None:
        await asyncio.to_thread(
            self._store.advance_attempt, attempt.id, e.Ended(), time.time(), outcome=outcome, failure=failure
        )
        await self._engine.forget(attempt.id)
        self._asked.pop(attempt.id, None)
        self._bus.ring()

    async def _remove_stranger(self, key: AttemptId) -> None:
        """A gang that the store knows nothing of, or knows as ended: it must hold no slot."""
        with contextlib.suppress(Unconfirmed):
            await self._engine.kill(key)
            await self._engine.forget(key)

    def _history(self, experiment: int, trial: int) -> tuple[list[Attempt], list[str]]:
        """A trial's attempts and its committed checkpoints; storage is the truth about these."""
        committed = self._places.open(experiment, trial).committed()
        return self._store.attempts(experiment, trial), [manifest.id for manifest in committed]

    async def _end_times(self) -> None:
        """Pause trainings that have held their slots for as long as they were to; a checkpoint is committed as ever."""
        picture = await self.pictures.now()
        for run in [run for run in picture.runs.values() if run.ends is not None and run.ends <= picture.at]:
            trial = self.pictures.mirror.trial(run.key.experiment, run.key.trial)
            experiment = self.pictures.mirror.experiments.get(run.key.experiment)
            active = experiment is not None and experiment.state is ExperimentState.ACTIVE
            if experiment is None or trial is None or not active or trial.state not in GOING_ON:
                continue
            with self._apart(f"the time of {run.key}"):
                length, number = duration_word(experiment.config.max_time or 0.0), experiment.number
                note = f"paused: its --max-time of {length} is over; daylight resume {number} gives it as long again"
                key = AttemptId(number, trial.index, trial.attempt)
                await asyncio.to_thread(self._store.note, key, note, time.time())
                await asyncio.to_thread(self._store.advance_experiment, number, e.Paused(), time.time())
                self._bus.ring()

    # What experiments want of their trials

    async def _align(self) -> bool:
        """Whether any experiment goes on."""
        async with self.settling:
            picture = await self.pictures.now()
            mirror = self.pictures.mirror
            numbers = sorted((self.pictures.unaligned | mirror.searches.keys()) & mirror.experiments.keys())
            self.pictures.unaligned.intersection_update(numbers)  # the others have ended
            for experiment in [mirror.experiments[number] for number in numbers]:
                if experiment.number in self._under_way:
                    continue
                self.pictures.unaligned.discard(experiment.number)  # first: what is heard meanwhile counts anew
                with self._apart(f"experiment #{experiment.number}"):
                    await self._align_one(experiment, picture)
        return any(experiment.state != "paused" for experiment in mirror.experiments.values())

    async def _align_one(self, experiment: Experiment, picture: Picture) -> None:
        """Bring the trials of one experiment to what its state asks, and end it when all of them have ended."""
        # What only a search holds has nothing to hear, but for the end; there may be thousands.
        ending = experiment.state is ExperimentState.STOPPING
        read = partial(self._store.trials, states=OPEN) if ending else self._store.restless_trials
        moves = [
            Moved(trial.index, nudge.event, nudge.changes)
            for trial in await asyncio.to_thread(read, experiment.number)
            if (nudge := align(experiment.state, trial, possible(picture, experiment, trial)))
        ]
        for begin in range(0, len(moves), TOGETHER):
            some = moves[begin : begin + TOGETHER]
            await asyncio.to_thread(self._store.record, experiment.number, (), some, at=time.time())
            self._bus.ring()
        over = await self._search_over(experiment)
        counts = await asyncio.to_thread(self._store.trial_counts, experiment.number)
        failed = await asyncio.to_thread(self.searches.failed, experiment) if over else None
        event = settled(experiment.state, counts, over, failed=failed is not None)
        if event is not None:
            ended = await asyncio.to_thread(self._store.advance_experiment, experiment.number, event, time.time())
            self._bus.ring()
            self.searches.forget(experiment.number)
            tidy = partial(self._tidy, ended)
            await self._patiently(ended.number, f"the checkpoints of experiment #{ended.number}", tidy)

    async def _tidy(self, ended: Experiment) -> None:
        await asyncio.to_thread(collect, self._store, self._places, ended, time.time())

    async def _search_over(self, experiment: Experiment) -> bool | None:
        """Bring a search up to date, and end it when it has used up what it was given; None where there is none."""
        search, now = experiment.config.search, time.time()
        if search is None:
            return None
        if await asyncio.to_thread(self.searches.hear, experiment):
            self._bus.ring()
        spent = search.budget and await asyncio.to_thread(self._store.slot_seconds, experiment.number, now)
        limit = used_up(search, spent or 0.0, now - experiment.created_at)
        if limit is not None:
            await asyncio.to_thread(self.searches.close, experiment, limit)
        return await asyncio.to_thread(self.searches.over, experiment)

    # What starts

    async def _start_queued(self) -> None:
        async with self.pictures.looking() as picture:
            decisions = decide(picture)
            self.pictures.decided(picture, decisions)
        for start in decisions.starts:
            if start.ask.experiment in self._under_way:
                continue
            with self._apart(f"the start of {start.ask.experiment}.{start.ask.trial}"):
                await self._start_or_tell(start)
        for preempt in decisions.preempts:
            with self._apart(f"the leave of {preempt.run.key}"):
                if preempt.run.key.server:
                    await self.notebooks.take_back(picture, preempt)
                else:
                    await self._put_aside(preempt)

    async def _put_aside(self, preempt: Preempt) -> None:
        """Have a gang commit a checkpoint and go. Nothing holds its trial: it asks again, in its old place."""
        number, index = preempt.run.key.experiment, preempt.run.key.trial
        trial = await asyncio.to_thread(self._store.trial, number, index)
        if trial.state not in (TrialState.STARTING, TrialState.RUNNING):
            return
        await asyncio.to_thread(self._store.advance_trial, number, index, e.Release(), time.time())
        note = f"attempt {trial.attempt} was put aside: {preempt.reason}; it goes on when there is room again"
        await asyncio.to_thread(self._store.note, AttemptId(number, index, trial.attempt), note, time.time())
        self._bus.ring()

    async def _start_or_tell(self, start: Start) -> None:
        """Start an attempt; what stands in the way, as a store that is away, is a part of why its trial waits."""
        trial = start.ask.experiment, start.ask.trial
        try:
            await (self._grant(start) if start.ask.trial == ANY_TRIAL else self._start(start, start.ask.key))
        except Exception as error:
            self._asking.troubles[trial] = _said(error)
            self.pictures.look_again(start.ask.key)
            raise
        self._asking.troubles.pop(trial, None)

    async def _grant(self, start: Start) -> None:
        """Let a search say whose the gang is; a trial that cannot have it yet asks by itself from now on."""
        experiment = await asyncio.to_thread(self._store.experiment, start.ask.experiment)
        if experiment.state is not ExperimentState.ACTIVE:  # it has been paused since
            return
        trial = await asyncio.to_thread(self.searches.vacancy, experiment)
        self._asking.got(experiment.number, time.time())
        self._bus.ring()
        if trial is None or trial.state is not TrialState.QUEUED:
            return
        ask = await asyncio.to_thread(self._asking.for_trial, experiment, trial, start.ask.pool)
        if not ask.preparing:
            await self._start(start, ask.key)

    async def _start(self, start: Start, key: Key) -> None:
        """Make the attempt first: it fences the older ones and pins where this one resumes. Then start its gang."""
        number, index = key.experiment, key.trial
        experiment = await asyncio.to_thread(self._store.experiment, number)
        python = await asyncio.to_thread(self.preparation.python, experiment)
        token = secrets.token_urlsafe(32)
        resume = resume_point(*await asyncio.to_thread(self._history, number, index))
        async with self.pictures.starting(key, start):
            attempt = await asyncio.to_thread(
                self._store.add_attempt, number, index, start.placement, resume.point, digest(token), time.time()
            )
        missing: DaylightError | None = self.beginnings.missing(number, index)
        begins_from = (await asyncio.to_thread(self._store.trial, number, index)).begins_from
        if missing is None and begins_from is not None and resume.point is None:
            deleted = f"the copy of checkpoint {begins_from}, from which it began, has been deleted"
            missing = NotFound(resume.note or deleted)
        if missing is not None:
            await self._refuse(attempt, missing)
            return
        if resume.note:
            await asyncio.to_thread(self._store.note, attempt.id, resume.note, time.time())
        self._bus.ring()
        launch = partial(self._launch, experiment, attempt, python, token)
        await self._patiently(number, f"the start of attempt {attempt.id}", launch)

    async def _launch(self, experiment: Experiment, attempt: Attempt, python: str, token: str) -> None:
        """Put the code of an attempt in its place, and start its gang there."""
        trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
        job = job_of(experiment, trial, attempt, python, self._places, self._home, self._url)
        try:
            note = await asyncio.to_thread(self.preparation.note, experiment, attempt.number - 1)
            if note:
                await asyncio.to_thread(self._store.note, attempt.id, note, time.time())
                self._bus.ring()
            archive = await asyncio.to_thread(self._archive.get, experiment.snapshot)
            working = await asyncio.to_thread(self._areas.of(experiment.owner).unpack, job, archive)
            job = job.model_copy(update={"cwd": working.cwd})
            if working.note:
                await asyncio.to_thread(self._store.note, attempt.id, working.note, time.time())
                self._bus.ring()
            await self._engine.submit(job, token)
        except Exception as error:  # whatever it is, it is this attempt's end and no one else's
            _log.exception("attempt %s could not be started", attempt.id)
            failure = Failure(rank=0, type=type(error).__name__, message=f"the gang could not be started: {error}")
            result = AttemptResult(outcome="failed", exit_codes=(), failure=failure, ended_at=time.time())
            await self._end(trial, attempt, Outcome.FAILED, result)

    async def _refuse(self, attempt: Attempt, missing: DaylightError) -> None:
        """End a trial that has nothing to begin from, and would have nothing the next time either."""
        failure = Failure(rank=0, type=type(missing).__name__, message=missing.message)
        event = e.Errored(retries_left=False)
        await asyncio.to_thread(
            self._store.advance_trial, attempt.experiment, attempt.trial, event, time.time(), failure=failure
        )
        await self._close(attempt, Outcome.FAILED, failure)


def possible(picture: Picture, experiment: Experiment, trial: Trial) -> bool:
    """Whether a gang for this trial could ever be had."""
    pool = pool_of(experiment.config, picture.nodes.values())
    return impossible(picture, plain_ask(experiment, trial, pool)) is None


def _said(error: Exception) -> str:
    """An error in few words; that of a file without its number, but with its name."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)
