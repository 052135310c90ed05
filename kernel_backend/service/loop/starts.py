"""Start attempts: find the resume checkpoint, store the attempt, unpack the snapshot, submit the gang."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.errors import DaylightError, NotFound
from kernel_backend.lifecycle.resume import Resume, resume_point
from kernel_backend.model import events as e
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import ExperimentState, Outcome, TrialState
from kernel_backend.model.trial import Attempt, Failure, checkpoint_step
from kernel_backend.scheduler.decisions import Start
from kernel_backend.scheduler.requests import ANY_TRIAL, RequestKey
from kernel_backend.service.admission import check_staging
from kernel_backend.service.checkpoint_copies import CheckpointCopies
from kernel_backend.service.context import Context
from kernel_backend.service.environments import Preparation
from kernel_backend.service.isolation import ROUND_WAIT_S, Work
from kernel_backend.service.loop.ends import AttemptEnder
from kernel_backend.service.loop.launch_spec import found_batch, job_of, tuned_loader
from kernel_backend.service.search.runner import Searches
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.requests import RequestBuilder, StartError
from kernel_backend.spec.slots import resized_note

Launch = tuple[int, str, Work]  # experiment, description for the log, and the work

FRESH_S = 5.0  # age from which a lookup is repeated, as a checkpoint may be deleted while its trial waits

_log = logging.getLogger(__name__)


class _Begins(NamedTuple):
    """Interpreter and resume checkpoint with which a new attempt starts, as found in the owner's files."""

    python: str
    resume: Resume
    slots: int | None  # number of slots of the trial's newest attempt; None if it has none
    beyond: int  # the largest number of an attempt that has left files
    at: float  # time of the lookup, by time.monotonic()


class AttemptStarter:
    """Part of the service that creates attempts and submits their gangs; no other part does."""

    def __init__(
        self,
        context: Context,
        cluster_state: ClusterStateManager,
        request_builder: RequestBuilder,
        searches: Searches,
        preparation: Preparation,
        checkpoint_copies: CheckpointCopies,
        ends: AttemptEnder,
    ) -> None:
        """Create a starter; it uses `ends` to end the attempts that fail to start."""
        self._store, self._engine, self._nodes = context.store, context.engines, context.nodes
        self._archive, self._workspaces = context.archive, context.workspaces
        self._bus, self._wake, self._cluster_state = context.bus, context.wake, cluster_state
        self._job = partial(job_of, storage=context.checkpoint_storage, home=context.home, url=context.url)
        self._data_nodes = context.data_nodes
        self._launcher_urls, self._root = context.launcher_urls, context.checkpoint_storage.root
        self._request_builder, self._searches, self._preparation, self._checkpoint_copies = (
            request_builder,
            searches,
            preparation,
            checkpoint_copies,
        )
        self._ends = ends
        self._looks: dict[tuple[int, int, int, str], asyncio.Task[_Begins]] = {}  # by trial, attempt and pool
        self._patience = ROUND_WAIT_S  # seconds that this round may still wait for lookups of trials of searches

    async def look(self, starts: Sequence[Start]) -> list[Start]:
        """Find the checkpoints from which the attempts in `starts` would resume; return the starts that can be made.

        Waits at most `ROUND_WAIT_S`, since an owner's files or agent may be slow. A start whose checkpoint has not been
        found by then is left out, for a later round.
        """
        self._patience = ROUND_WAIT_S
        # Drop the lookups of trials that were stopped before they began.
        self._looks = {about: task for about, task in self._looks.items() if not _stale(task)}
        before = set(self._looks.values())
        known = {
            start.request.key: self._begin_look(start.request.key, start.request.pool)
            for start in starts
            if start.request.trial != ANY_TRIAL
        }
        if new := set(known.values()) - before:
            await asyncio.wait(new, timeout=ROUND_WAIT_S)
        return [start for start in starts if start.request.key not in known or known[start.request.key].done()]

    async def start(self, start: Start) -> Launch | None:
        """Create an attempt, and return the function that launches its gang, with its experiment and a log name.

        None if no gang is to be launched now. If the attempt cannot be created, the error is recorded as the reason why
        the trial waits, and raised.
        """
        trial = start.request.experiment, start.request.trial
        try:
            begun = await (
                self._grant(start) if start.request.trial == ANY_TRIAL else self._begin(start, start.request.key)
            )
        except Exception as error:
            self._request_builder.start_errors[trial] = StartError.after(
                self._request_builder.start_errors.get(trial), _said(error)
            )
            self._cluster_state.look_again(start.request.key)
            raise
        self._request_builder.start_errors.pop(trial, None)
        return begun

    def cancel(self) -> None:
        """Cancel all lookups of resume checkpoints."""
        for task in self._looks.values():
            task.cancel()

    def _begin_look(self, key: RequestKey, pool: str) -> asyncio.Task[_Begins]:
        """Return the task that finds a trial's interpreter and resume checkpoint for its next attempt in a pool.

        An earlier task for the same attempt is returned if it is still up to date; otherwise a new one is started.
        """
        trial = self._cluster_state.cache.trial(key.experiment, key.trial)
        about = key.experiment, key.trial, trial.attempt if trial is not None else 0, pool
        task = self._looks.get(about)
        if task is None or _stale(task):
            task = self._looks[about] = asyncio.create_task(self._look(key, pool), name=f"what {key} begins from")
            task.add_done_callback(lambda _: self._wake())
        return task

    async def _look(self, key: RequestKey, pool: str) -> _Begins:
        experiment = await asyncio.to_thread(self._store.experiment, key.experiment)
        python = await asyncio.to_thread(self._preparation.launchers_python, experiment, pool)
        active = list(self._cluster_state.cache.searches.values())
        await asyncio.to_thread(self._searches.mark_followed, active, key.experiment, key.trial)
        attempts, committed = await asyncio.to_thread(self._ends.history, key.experiment, key.trial)
        resume, slots = resume_point(attempts, committed), attempts[-1].slots if attempts else None
        beyond = await asyncio.to_thread(self._last_attempt, experiment, key.trial)
        return _Begins(python, resume, slots, beyond, time.monotonic())

    async def _grant(self, start: Start) -> Launch | None:
        """Have a search choose the trial that gets the slots of `start`, and start it; return the same as `_begin`.

        None if the search chooses no trial, or if the trial cannot start at once; it is then queued with a request of
        its own.
        """
        experiment = await asyncio.to_thread(self._store.experiment, start.request.experiment)
        if experiment.state is not ExperimentState.ACTIVE:  # the experiment was paused meanwhile
            return None
        trial = await asyncio.to_thread(self._searches.on_slot, experiment)
        self._request_builder.got(experiment.number, time.time())
        self._bus.notify()
        if trial is None or trial.state is not TrialState.QUEUED:
            return None
        request = await asyncio.to_thread(self._request_builder.for_trial, experiment, trial, [start.request.pool])
        if request.preparing:
            return None
        done, _ = await asyncio.wait({self._begin_look(request.key, request.pool)}, timeout=self._patience)
        if not done:
            self._patience = 0.0  # a search may get a hundred gangs at once: later rounds start the rest
            return None
        return await self._begin(start, request.key)

    async def _begin(self, start: Start, key: RequestKey) -> Launch | None:
        """Store the new attempt, then return what `start` returns; None if the trial's start checkpoint is gone.

        Once the attempt is stored, older attempts of the trial can report nothing more (they are fenced), and the
        checkpoint from which it resumes is fixed.
        """
        number, index = key.experiment, key.trial
        looked = self._begin_look(key, start.request.pool)
        self._looks = {about: task for about, task in self._looks.items() if task is not looked}
        python, resume, before, beyond, _ = await looked
        experiment = await asyncio.to_thread(self._store.experiment, number)
        token = secrets.token_urlsafe(32)
        async with self._cluster_state.starting(key, start):
            add = partial(self._store.add_attempt, number, index, start.placement, resume.point, token_digest(token))
            pool = start.request.pool
            granted = self._engine.places(pool)  # else its nodes are known once its launchers join
            attempt = await asyncio.to_thread(add, time.time(), beyond, granted, pool)
        missing: DaylightError | None = self._checkpoint_copies.missing(number, index)
        self._checkpoint_copies.forget(number, index)
        begins_from = (await asyncio.to_thread(self._store.trial, number, index)).begins_from
        if missing is None and begins_from is not None and resume.point is None:
            deleted = f"the copy of checkpoint {begins_from}, from which it began, has been deleted"
            missing = NotFound(resume.note or deleted)
        if missing is not None:
            await self._refuse(attempt, missing)
            return None
        for note in filter(None, (resume.note, _resized(experiment, resume, before, attempt))):
            await asyncio.to_thread(self._store.note, attempt.id, note, time.time())
        self._bus.notify()
        return (
            number,
            f"the start of attempt {attempt.id}",
            partial(self._launch, experiment, attempt, python, token),
        )

    def _last_attempt(self, experiment: Experiment, index: int) -> int:
        """Return the largest number of an attempt of this trial, in the store or among its files.

        A database that was restored from a backup may lack attempts that have left files.
        """
        number, workspace = experiment.number, self._workspaces.of(experiment.owner)
        newest = max(self._store.trial(number, index).attempt, self._ends.newest_attempt(number, index))
        return workspace.last_attempt(number, index, newest)

    async def _launch(self, experiment: Experiment, attempt: Attempt, python: str, token: str) -> None:
        """Unpack the code of an attempt into its folder, and submit its gang to the pool's engine.

        `python` is the interpreter of the ranks, `token` the attempt's secret. An error ends the attempt.
        """
        pool = attempt.pool
        try:
            trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
            settings = self._engine.settings(pool)
            check_staging(pool, settings, self._root)  # the pool may have changed since the submission
            staged = settings is not None and not settings.shared
            keeps, urls = pool in self._engine.keeping(), self._launcher_urls()
            loader = await asyncio.to_thread(tuned_loader, self._store, experiment, attempt.trial)
            batch = await asyncio.to_thread(found_batch, self._store, experiment, trial)
            job = self._job(
                experiment,
                trial,
                attempt,
                python,
                pool,
                urls=urls,
                staged=staged,
                keeps=keeps,
                loader=loader,
                batch=batch,
            )
            if not self._engine.places(pool):
                near = await asyncio.to_thread(self._data_nodes.of, experiment, (pool,))
                left_out = {*job.excluded, *self._nodes.left_out(pool)}
                job = job.model_copy(update={"excluded": tuple(left_out), "preferred": tuple(sorted(near - left_out))})
            note = await asyncio.to_thread(self._preparation.note, experiment, attempt.number - 1)
            if note:
                await asyncio.to_thread(self._store.note, attempt.id, note, time.time())
                self._bus.notify()
            await self._engine.submit(job if job.staged else await self._unpacked(experiment.owner, job), token)
        except EngineUnavailable as error:  # the engine may have the gang, which is looked for before its end is stored
            _log.warning("attempt %s could not be submitted: %s", attempt.id, error)
            failure = Failure(rank=0, type=type(error).__name__, message=str(error), consequence=True)
            result = AttemptResult(outcome="lost", exit_codes=(), failure=failure, ended_at=time.time())
            await self._ends.end(attempt, Outcome.LOST, result)
        except Exception as error:  # any error ends only this attempt
            _log.exception("attempt %s could not be started", attempt.id)
            failure = Failure(rank=0, type=type(error).__name__, message=f"the gang could not be started: {error}")
            result = AttemptResult(outcome="failed", exit_codes=(), failure=failure, ended_at=time.time())
            await self._ends.end(attempt, Outcome.FAILED, result)

    async def _unpacked(self, owner: str, job: LaunchSpec) -> LaunchSpec:
        """Unpack the code of an attempt; return its launch spec completed by the folder in which its ranks work.

        If something about that folder is unusual, a note on the trial says so.
        """
        archive = await asyncio.to_thread(self._archive.get, job.snapshot)
        working = await asyncio.to_thread(self._workspaces.of(owner).unpack, job, archive)
        if working.note:
            await asyncio.to_thread(self._store.note, job.id, working.note, time.time())
            self._bus.notify()
        return job.model_copy(update={"cwd": working.cwd})

    async def _refuse(self, attempt: Attempt, missing: DaylightError) -> None:
        """Fail a trial whose start checkpoint is gone for good, with the error `missing`, and end its attempt."""
        failure = Failure(rank=0, type=type(missing).__name__, message=missing.message)
        event = e.Errored(retries_left=False)
        await asyncio.to_thread(
            self._store.advance_trial, attempt.experiment, attempt.trial, event, time.time(), failure=failure
        )
        await self._ends.close(attempt, Outcome.FAILED, failure)


def _resized(experiment: Experiment, resume: Resume, before: int | None, attempt: Attempt) -> str | None:
    """Return a note if an elastic training continues with another number of slots than `before`, else None."""
    elastic = experiment.config.least_slots is not None
    if not elastic or before is None or before == attempt.slots or resume.point is None:
        return None
    return resized_note(experiment.config, before, attempt.slots, checkpoint_step(resume.point))


def _stale(look: asyncio.Task[_Begins]) -> bool:
    """Return whether the lookup of a resume checkpoint must be repeated: it has failed, or is older than `FRESH_S`."""
    if not look.done():
        return False
    return look.cancelled() or look.exception() is not None or look.result().at < time.monotonic() - FRESH_S


def _said(error: Exception) -> str:
    """Return the text of an error for users; for an OSError its message and file, without the error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)
