"""End attempts: stop gangs, advance their trials to the next state, and free their slots even if a step fails.

If a trial cannot be advanced within `PROMPT_S`, its slots are freed first. The trial then still counts as running,
though its attempt has ended, and a later round of the control loop, or a restarted service, advances it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial

from kernel_backend.checkpoints.verify import newest_attempt
from kernel_backend.engines.base import Unconfirmed
from kernel_backend.errors import DaylightError
from kernel_backend.lifecycle.outcomes import attempt_end
from kernel_backend.lifecycle.resume import progressed, remembered
from kernel_backend.model import events as e
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import HOLDING_SLOTS, AttemptState, ExperimentState, Outcome, TrialState
from kernel_backend.model.trial import Attempt, Failure, Trial, checkpoint_step
from kernel_backend.service.context import Context
from kernel_backend.service.loop.spools import SpoolIntake
from kernel_backend.service.search.runner import Searches

PROMPT_S = 1.0  # how long the slots of an ended gang wait for its trial to advance
STOP_GRACE_S = 30.0  # time for a gang to exit if its trial ends for good; else the scheduler's grace period applies

_log = logging.getLogger(__name__)


class AttemptEnder:
    """Part of the service that kills gangs and records the ends of their attempts; no other part does."""

    def __init__(self, context: Context, searches: Searches, spools: SpoolIntake) -> None:
        self._store, self._engine, self._nodes = context.store, context.engines, context.nodes
        self._storage, self._spools = context.checkpoint_storage, spools
        self._searches, self._bus, self._wake = searches, context.bus, context.wake
        self._grace = context.rules.grace  # seconds for a gang to exit if its trial continues later
        self._settling: dict[AttemptId, asyncio.Task[None]] = {}
        self._asked: dict[AttemptId, float] = {}  # when each gang was asked to exit, by time.monotonic()

    async def see_off(self, trial: Trial, attempt: Attempt, since: float | None) -> None:
        """Request that a gang commits a checkpoint and exits, and kill it when its grace period is over.

        The control loop calls this in every round until the gang has ended. `since` is the stored time (seconds since
        the epoch) of the first such request, perhaps by an earlier process of the service; None if there was none yet.
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

    async def end(self, attempt: Attempt, outcome: Outcome, result: AttemptResult | None) -> None:
        """Kill the remaining ranks of a gang, advance its trial to the next state, and free its slots.

        `outcome` is how the attempt ended; `result` is what its launchers have written, if anything. The slots are
        freed after `PROMPT_S` even if the records or checkpoints of the trial cannot be read; later rounds then advance
        the trial. A trial that is requeued within that time keeps its queue position.
        """
        try:
            await self._engine.kill(attempt.id)
        except Unconfirmed as error:
            _log.warning("%s", error)
            return
        outcome = await self._without_bad_nodes(attempt, outcome, result)
        failure = result.failure if result else None
        settling = self._begin(attempt.model_copy(update={"outcome": outcome, "failure": failure}), result)
        await asyncio.wait({settling}, timeout=PROMPT_S)
        await self._ended(attempt, outcome, failure)
        self._check(attempt.id, settling)
        if settling.done():  # else a later round finds it as an unknown gang, and forgets it
            await self._engine.forget(attempt.id)

    async def _without_bad_nodes(self, attempt: Attempt, outcome: Outcome, result: AttemptResult | None) -> Outcome:
        """Store the faults of nodes that ended a gang; return its outcome, or `lost` if such a node is now excluded.

        With the outcome `lost`, the trial continues on other nodes, and no retry is used up.
        """
        if outcome not in (Outcome.LOST, Outcome.FAILED):
            return outcome
        left_out = await self._nodes.blame_for(attempt, outcome, result)
        for fault in left_out:
            text = f"node {fault.node} is left out for now: {fault.reason}"
            await asyncio.to_thread(self._store.note, attempt.id, text, time.time())
        return Outcome.LOST if left_out else outcome

    async def settle(self, attempt: Attempt, result: AttemptResult | None) -> None:
        """Advance the trial of an attempt that has ended, if `end` could not do so in time."""
        self._check(attempt.id, self._begin(attempt, result))

    def cancel(self) -> None:
        """Cancel the tasks that advance trials; the service advances these trials after its next start."""
        for task in list(self._settling.values()):
            task.cancel()

    def _begin(self, attempt: Attempt, result: AttemptResult | None) -> asyncio.Task[None]:
        task = self._settling.get(attempt.id)
        if task is None:
            work = self._settle(attempt, result)
            task = self._settling[attempt.id] = asyncio.create_task(work, name=f"the end of attempt {attempt.id}")
            task.add_done_callback(partial(self._done, attempt.id))
        return task

    def _done(self, key: AttemptId, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            del self._settling[key]
        self._wake()

    def _check(self, key: AttemptId, task: asyncio.Task[None]) -> None:
        """If the task that advances a trial has failed, raise its error and drop it, so that the next call starts one.

        Otherwise do nothing.
        """
        if task.done() and self._settling.pop(key, None) is not None:
            task.result()

    async def _settle(self, attempt: Attempt, result: AttemptResult | None) -> None:
        """Store the records left in an attempt's files, then advance its trial, unless that was done already."""
        trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
        if trial.attempt == attempt.number and trial.state in HOLDING_SLOTS:
            experiment = await asyncio.to_thread(self._store.experiment, attempt.experiment)
            await self._spools.take_in(attempt.id, experiment.owner)
            await self._take_news(attempt.experiment)
            await self._move_on(attempt, result)
        if attempt.state is AttemptState.ENDED:  # else the engine's record of the gang is still needed
            await self._engine.forget(attempt.id)

    async def _move_on(self, attempt: Attempt, result: AttemptResult | None) -> None:
        # Read again: the user may have stopped the trial while the spool was stored.
        trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
        experiment = await asyncio.to_thread(self._store.experiment, attempt.experiment)
        outcome, failure = attempt.outcome or Outcome.LOST, attempt.failure
        matched = result.matched if result else ()
        progress = await asyncio.to_thread(self._progressed, trial)
        what = attempt_end(trial, attempt, outcome, failure, progress, experiment.config.max_restarts, matched)
        trace = (await asyncio.to_thread(self._store.attempt, attempt.id)).trace
        untraced = ["the trace that was asked for is not there: the attempt ended before it was recorded"]
        for note in [*what.notes, *(untraced if trace is not None else [])]:
            await asyncio.to_thread(self._store.note, attempt.id, note, time.time())
        if what.pause and experiment.state is ExperimentState.ACTIVE:
            # The trial first: if the service dies before the attempt is closed, the next one finds and closes it.
            await asyncio.to_thread(self._store.advance_experiment, experiment.number, e.Paused(), time.time())
        if what.final and result and result.preparing and failure and experiment.config.search is not None:
            await asyncio.to_thread(self._searches.unprepared, experiment, trial.index, failure)
        if experiment.config.await_evaluation and experiment.config.search is not None and what.left:
            await asyncio.to_thread(self._searches.advance_released, experiment, trial.index)
        else:
            await asyncio.to_thread(
                self._store.advance_trial, trial.experiment, trial.index, what.event, time.time(), **what.changes
            )
        self._bus.notify()

    def _progressed(self, trial: Trial) -> bool:
        """Return whether a trial has a checkpoint beyond every checkpoint from which any of its attempts resumed.

        This is read from the committed checkpoints; if the storage cannot be read, from the newest reported checkpoint.
        """
        try:
            return progressed(*self.history(trial.experiment, trial.index))
        except (DaylightError, OSError) as error:
            _log.warning("the checkpoints of trial %s cannot be listed: %s", trial.id, error)
        begun = (each.resume_from for each in self._store.attempts(trial.experiment, trial.index))
        return checkpoint_step(trial.checkpoint) > max(map(checkpoint_step, begun), default=0)

    async def _take_news(self, number: int) -> None:
        """If experiment `number` is a search, have the search process all stored reports of its trials."""
        experiment = await asyncio.to_thread(self._store.experiment, number)
        if experiment.config.search is not None:
            await asyncio.to_thread(self._searches.take_news, experiment)

    async def close(self, attempt: Attempt, outcome: Outcome, failure: Failure | None) -> None:
        """Record the end of an attempt whose trial has already advanced, and let the engine forget its gang."""
        await self._ended(attempt, outcome, failure)
        await self._engine.forget(attempt.id)

    async def _ended(self, attempt: Attempt, outcome: Outcome, failure: Failure | None) -> None:
        """Store the end of an attempt, which frees its slots."""
        await asyncio.to_thread(
            self._store.advance_attempt, attempt.id, e.Ended(), time.time(), outcome=outcome, failure=failure
        )
        self._asked.pop(attempt.id, None)
        self._bus.notify()

    async def remove_unknown(self, key: AttemptId) -> None:
        """Kill a gang whose attempt has ended or is not in the store, and have the engine forget it.

        Such a gang must hold no slots.
        """
        with contextlib.suppress(Unconfirmed):
            await self._engine.kill(key)
            await self._engine.forget(key)

    async def set_aside(self, key: AttemptId) -> None:
        """Kill a gang that was started for another attempt with the same number, and rename its folder.

        The other attempt was in a database that has been lost. The present attempt can then use the folder's name.
        """
        _log.warning("the folder of attempt %s is another attempt's: it is set aside", key)
        with contextlib.suppress(Unconfirmed):
            await self._engine.set_aside(key)

    def newest_attempt(self, experiment: int, trial: int) -> int:
        """Return the largest number of an attempt with files in the trial's checkpoint storage; 0 if there is none."""
        return newest_attempt(self._storage.open(experiment, trial).names())

    def history(self, experiment: int, trial: int) -> tuple[list[Attempt], list[str]]:
        """Return a trial's attempts, and the ids of its committed checkpoints in storage.

        For a trial of a search, checkpoints of attempts that are not in the store are left out (see
        `resume.remembered`).
        """
        attempts = self._store.attempts(experiment, trial)
        committed = [manifest.id for manifest in self._storage.open(experiment, trial).committed()]
        searches = self._store.experiment(experiment).config.search is not None
        return attempts, remembered(attempts, committed) if searches else committed
