"""The ends of attempts: gangs are asked to leave and seen off, and what they came to moves their trials on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from kernel_backend.checkpoints.places import Places
from kernel_backend.checkpoints.verify import newest_attempt
from kernel_backend.engines.base import Engine, Unconfirmed
from kernel_backend.model import events as e
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import ExperimentState, Outcome, TrialState
from kernel_backend.model.trial import Attempt, Failure, Trial
from kernel_backend.scheduler.endings import ending
from kernel_backend.scheduler.resume import progressed, remembered
from kernel_backend.service.bus import Bus
from kernel_backend.service.searches import Searches
from kernel_backend.store.base import Store

STOP_GRACE_S = 30.0  # what a gang gets to go when its work ends for good; else it is a rule of the scheduler's

_log = logging.getLogger(__name__)


class Ends:
    """Nothing else ends an attempt."""

    def __init__(
        self, store: Store, engine: Engine, places: Places, searches: Searches, bus: Bus, grace: float
    ) -> None:
        """`grace` is what a gang gets to go whose trial goes on later."""
        self._store, self._engine, self._places = store, engine, places
        self._searches, self._bus, self._grace = searches, bus, grace
        self._asked: dict[AttemptId, float] = {}  # when a gang was asked to leave, as time.monotonic() tells it

    async def see_off(self, trial: Trial, attempt: Attempt, since: float | None) -> None:
        """Ask a gang to leave, and make it when its grace is over.

        `since` is when it was asked first, as far as that is known: perhaps by a service before this one.
        """
        asked = self._asked.get(attempt.id)
        if asked is None:
            before = 0.0 if since is None else max(0.0, time.time() - since)
            self._asked[attempt.id] = time.monotonic() - before
            await self._engine.release(attempt.id)
            return
        grace = STOP_GRACE_S if trial.state is TrialState.STOPPING else self._grace
        if time.monotonic() - asked > grace:
            with contextlib.suppress(Unconfirmed):
                await self._engine.kill(attempt.id)

    async def end(self, trial: Trial, attempt: Attempt, outcome: Outcome, result: AttemptResult | None) -> None:
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
        progress = progressed(*await asyncio.to_thread(self.history, trial.experiment, trial.index))
        what = ending(trial, attempt, outcome, failure, progress, experiment.config.max_restarts, matched)
        for note in what.notes:
            await asyncio.to_thread(self._store.note, attempt.id, note, time.time())
        if what.pause and experiment.state is ExperimentState.ACTIVE:
            # First of the two: a service that dies between them comes to the same end again, and does the other.
            await asyncio.to_thread(self._store.advance_experiment, experiment.number, e.Paused(), time.time())
        if what.final and result and result.preparing and failure and experiment.config.search is not None:
            await asyncio.to_thread(self._searches.unprepared, experiment, trial.index, failure)
        await asyncio.to_thread(
            self._store.advance_trial, trial.experiment, trial.index, what.event, time.time(), **what.changes
        )
        await self.close(attempt, outcome, failure)

    async def _hear(self, number: int) -> None:
        """Have a search decide on what its trials have said: before one of them goes any way."""
        experiment = await asyncio.to_thread(self._store.experiment, number)
        if experiment.config.search is not None:
            await asyncio.to_thread(self._searches.hear, experiment)

    async def close(self, attempt: Attempt, outcome: Outcome, failure: Failure | None) -> None:
        """Write down how an attempt ended; its gang is gone, and the engine may forget it."""
        await asyncio.to_thread(
            self._store.advance_attempt, attempt.id, e.Ended(), time.time(), outcome=outcome, failure=failure
        )
        await self._engine.forget(attempt.id)
        self._asked.pop(attempt.id, None)
        self._bus.ring()

    async def remove_stranger(self, key: AttemptId) -> None:
        """A gang that the store knows nothing of, or knows as ended: it must hold no slot."""
        with contextlib.suppress(Unconfirmed):
            await self._engine.kill(key)
            await self._engine.forget(key)

    async def set_aside(self, key: AttemptId) -> None:
        """Put away a gang of another attempt of the same key, which a database that was lost knew."""
        _log.warning("the folder of attempt %s is another attempt's: it is set aside", key)
        with contextlib.suppress(Unconfirmed):
            await self._engine.set_aside(key)

    def newest_attempt(self, experiment: int, trial: int) -> int:
        """Return the number of the newest attempt that has left anything beside the trial's checkpoints; 0 for none."""
        return newest_attempt(self._places.open(experiment, trial).names())

    def history(self, experiment: int, trial: int) -> tuple[list[Attempt], list[str]]:
        """A trial's attempts and the committed checkpoints that count; storage is the truth about these."""
        attempts = self._store.attempts(experiment, trial)
        committed = [manifest.id for manifest in self._places.open(experiment, trial).committed()]
        searches = self._store.experiment(experiment).config.search is not None
        return attempts, remembered(attempts, committed) if searches else committed
