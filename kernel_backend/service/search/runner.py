"""Run active searches: pass reports of trials to their searchers, which decide about trials, and store the decisions.

Each decision is stored in one transaction with its effect on the trial. After a restart a searcher is rebuilt by
replaying its log, then reads the reports stored since then. Searchers that may be slow (custom search classes, Gaussian
processes) run in a separate thread; until they have answered, their search requests no gangs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from kernel_backend.errors import DaylightError
from kernel_backend.model import events as e
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.effects import Effect
from kernel_backend.model.search.records import (
    Closed,
    Create,
    Decision,
    Exited,
    Extended,
    Failed,
    Followed,
    Happening,
    Limit,
    LogEntry,
    Promoted,
    Reported,
    Resume,
    Vacancy,
)
from kernel_backend.model.states import EXPERIMENT_ENDED, TRIAL_ENDED, Hold, TrialState
from kernel_backend.model.trial import Failure, Trial
from kernel_backend.search import settings
from kernel_backend.search.effects import created, effect, held
from kernel_backend.search.follower import Follower
from kernel_backend.search.log import apply_event, replay
from kernel_backend.search.make import make
from kernel_backend.search.prior import prior_events
from kernel_backend.service import warm_start
from kernel_backend.service.search.custom_process import ClosableProcess, FailedSearchProcess
from kernel_backend.service.search.followed import FollowedCheckpoints, follows
from kernel_backend.service.search.state import SearchState, failure_in
from kernel_backend.service.search.traits import (
    exit_reason,
    is_custom,
    is_slow,
    method_of,
    settings_of,
    unprepared_text,
)
from kernel_backend.store.base import Store

LOG_PAGE = 1000  # log entries read at once: more records in memory slow down the garbage collector
PAUSES_S = (2.0, 60.0)  # before a failed search is retried: the first pause, which doubles up to the second
SAID = 2000  # length to which failure messages are cut
T = TypeVar("T")
_log = logging.getLogger(__name__)


class StoredFailure(NamedTuple):
    """Error that keeps a search from proceeding, with the time at which the search is tried again."""

    message: str
    pause: float  # seconds before the next try
    until: float  # time of the next try, by time.monotonic()


class Searches:
    """Runner of all searches. Methods may be called from any thread; each search is used by one thread at a time."""

    def __init__(
        self, store: Store, process: Callable[[Experiment], ClosableProcess], followed: FollowedCheckpoints
    ) -> None:
        """Create the runner; `process` returns, for an experiment, the process that is to run its custom search class.

        That process is not started yet when it is returned. `followed` reads the checkpoints that evaluations measure.
        """
        self._store, self._process, self._followed = store, process, followed
        self._left = set[int]()  # evaluations whose marks at followed trials are removed
        self._known: dict[int, SearchState] = {}
        self._locks: dict[int, threading.Lock] = {}
        self._errors: dict[int, StoredFailure] = {}
        self._failures: dict[int, str | None] = {}  # of ended searches; None: did not fail

    # Called by the loop

    def wants(self, experiment: Experiment) -> int:
        """Return how many more gangs a search could use, in addition to those that its trials hold or wait for."""
        return self._answer(experiment, lambda known: known.searcher.wants(), 0)

    def on_slot(self, experiment: Experiment) -> Trial | None:
        """Have a search choose the trial that gets a granted gang; return that trial, queued, or None.

        None means that no trial can use the gang now. A trial that must still wait for the end of its previous gang, or
        for a copy of a checkpoint, is queued later. A slow searcher decides in a thread: the call returns None, and the
        chosen trial is queued after the decision.
        """
        if is_slow(experiment):
            self._isolated(experiment, self._on_slot)
            return None
        with self._locked(experiment) as known:
            return self._on_slot(experiment, known) if known else None

    def take_news(self, experiment: Experiment) -> bool:
        """Pass a search the new reports of its trials; return whether that has led to new entries in its log.

        A slow searcher gets them in a thread, and False is returned.
        """
        if is_slow(experiment):
            if self._news(experiment):
                self._isolated(experiment, self._take_all)
            return False
        with self._locked(experiment) as known:
            return self._take_all(experiment, known) if known else False

    def over(self, experiment: Experiment) -> bool:
        """Return whether a search has ended: no trial is training, and none will be started any more."""
        return self._answer(experiment, lambda known: known.failure is None and known.searcher.over(), False)

    def failed(self, experiment: Experiment) -> str | None:
        """Return the message of the failure that ended a search, in its search class or in `prepare`; None if none did.

        Does not block on a slow searcher.
        """
        number, known = experiment.number, self._known.get(experiment.number)
        if known is not None:
            return known.failed
        if experiment.config.search is None or not (is_custom(experiment) or experiment.state == "failed"):
            return None
        if number not in self._failures:
            self._failures[number] = failure_in(self._store.search_log(number))
        return self._failures[number]

    def notice(self, experiment: Experiment) -> str | None:
        """Return the message of the failure that ended a search, or of the error that delays it; else None.

        Does not block on a slow searcher.
        """
        failure = self._errors.get(experiment.number)
        return self.failed(experiment) or (failure.message if failure is not None else None)

    def close(self, experiment: Experiment, limit: Limit) -> None:
        """Close a search because its `limit` is used up: it starts no more trials, and its active trials are paused.

        Idempotent.
        """
        with self._locked(experiment) as known:
            if known and not known.closed:
                paused = self._paused(experiment)
                self._happen(experiment, known, Closed(limit=limit), lambda _: paused)

    def unprepared(self, experiment: Experiment, trial: int, failure: Failure) -> None:
        """End a search because `prepare` has failed in one trial after all retries, and so would fail in every trial.

        The other trials are paused; those of a custom search class are paused when they reach the length to which they
        are being trained. If a slow searcher is busy, nothing happens now, and the next trial whose `prepare` fails
        ends the search.
        """
        with self._locked(experiment) as known:
            if known and known.failed is None:
                others = [] if is_custom(experiment) else self._paused(experiment, besides=trial)
                self._happen(experiment, known, Failed(message=unprepared_text(failure)[:SAID]), lambda _: others)

    def mark_followed(self, searches: Iterable[Experiment], experiment: int, trial: int) -> None:
        """Mark a trial that is about to start as followed by those of the active searches that measure it.

        So each of its checkpoints stays until it is measured.
        """
        for each in searches:
            if each.config.follows and follows(each, experiment, trial):
                self._followed.mark(each, experiment, trial)

    def leave(self, experiment: Experiment) -> bool:
        """Return whether a search that is about to end holds nothing of other experiments, such as checkpoints.

        If it does, that is ended in a thread.
        """
        if not experiment.config.follows or experiment.number in self._left:
            return True
        self._isolated(experiment, self._leave)
        return False

    def advance_released(self, experiment: Experiment, index: int) -> None:
        """Advance a trial that has left its slots without a decision of its search, which awaits an evaluation.

        At its target it stays paused until the decision comes; no decision is made meanwhile.
        """
        with self._locked(experiment, patient=True):
            trial = self._store.trial(experiment.number, index)
            reached = trial.step if experiment.config.steps is not None else trial.epoch + 1e-6
            waits = trial.until is not None and reached >= trial.until
            holds = trial.holds | {Hold.SEARCH} if waits else trial.holds
            event = e.Released(held=bool(holds))
            self._store.advance_trial(trial.experiment, index, event, time.time(), holds=holds, failures=0)

    def forget(self, number: int) -> None:
        """Drop the cached state of an ended search; its log stays in the store. Does not block."""
        self._errors.pop(number, None)
        self._left.discard(number)
        lock, known = self._lock(number), self._known.get(number)
        if (known is None or known.process is None) and lock.acquire(blocking=False):
            try:
                self._drop(number)
            finally:
                lock.release()
        else:
            threading.Thread(target=self._drop_locked, args=(number,), daemon=True).start()

    # Called by users

    def promote(self, experiment: Experiment, trial: int) -> None:
        """Have a search promote a trial with the next free gang, however good it is.

        Raises Conflict if the trial has ended.
        """
        with self._locked(experiment, patient=True) as known:
            assert known is not None
            self._happen(experiment, known, Promoted(trial=trial))

    def extend(self, experiment: Experiment, trials: int | None) -> None:
        """Set how many trials a search has in all (None: as many as the budget allows).

        Raises Conflict if the search already has more.
        """
        with self._locked(experiment, patient=True) as known:
            assert known is not None
            self._happen(experiment, known, Extended(trials=trials))
            if known.process is not None:
                self._drop(experiment.number)  # a search class that has failed is created again

    # Locking

    @contextlib.contextmanager
    def _locked(self, experiment: Experiment, patient: bool = False) -> Iterator[SearchState | None]:
        """Yield the state of a search, which no other thread uses during the block.

        Yields None if the search has ended, or if a slow searcher is working in another thread. With `patient`, wait
        for that searcher, and load the state of an ended search as well.
        """
        waits = patient or not is_slow(experiment)
        lock = self._lock(experiment.number)
        if not lock.acquire(blocking=waits):
            yield None
            return
        try:
            yield self._of(experiment, patient) if waits else self._known.get(experiment.number)
        finally:
            lock.release()

    def _lock(self, number: int) -> threading.Lock:
        return self._locks.setdefault(number, threading.Lock())

    def _answer(self, experiment: Experiment, question: Callable[[SearchState], T], otherwise: T) -> T:
        """Return the result of `question(state)` for a search, or `otherwise` if it cannot be computed now.

        That is so if the search has ended, if a slow searcher is busy, or if a slow searcher raises an error, which is
        recorded.
        """
        with self._locked(experiment) as known:
            if known is None:
                return otherwise
            try:
                return question(known)
            except Exception as error:
                if not is_slow(experiment):
                    raise
                self._fails(experiment, error)
                return otherwise

    def _isolated(self, experiment: Experiment, verb: Callable[[Experiment, SearchState], object]) -> None:
        """Run `verb` on the state of a search with a slow searcher, in a thread.

        Do nothing while an earlier thread for the search runs, or during the pause after an error.
        """
        failure = self._errors.get(experiment.number)
        if failure is not None and time.monotonic() < failure.until:
            return
        lock = self._lock(experiment.number)

        def work() -> None:
            try:
                known = self._of(experiment)
                if known is not None:
                    verb(experiment, known)
                    self._errors.pop(experiment.number, None)
            except Exception as error:
                self._fails(experiment, error)
            finally:
                lock.release()

        if lock.acquire(blocking=False):
            threading.Thread(target=work, name=f"search-{experiment.number}", daemon=True).start()

    def _news(self, experiment: Experiment) -> bool:
        with self._locked(experiment) as known:
            if known is None:
                return True
            follows = isinstance(known.searcher, Follower) and not known.searcher.ended
            if follows and self._followed.changed(experiment, known.read):
                return True
            heard = self._store.validations(experiment.number, known.heard)
            return bool(heard) or known.failure is not None or self._ended(experiment) != known.looked

    def _fails(self, experiment: Experiment, error: Exception) -> None:
        """Record and log an error that keeps a search from proceeding, and set the time of the next try."""
        number, expected = experiment.number, isinstance(error, DaylightError)
        before = self._errors.get(number)
        pause = min(PAUSES_S[1], 2 * before.pause) if before is not None else PAUSES_S[0]
        said = error.message if isinstance(error, DaylightError) else f"{type(error).__name__}: {error}"
        method = method_of(experiment)
        if method is not None and method.package and not expected:
            said = f"its method {method.name} of package {method.package} has raised {said}"
        message = f"the search does not go on: {said[:SAID]}; this is tried again"
        self._errors[number] = StoredFailure(message, pause, time.monotonic() + pause)
        _log.error("experiment #%d: %s", number, message, exc_info=None if expected else error)

    # Helpers

    def _on_slot(self, experiment: Experiment, known: SearchState) -> Trial | None:
        def effects(decision: Decision | None) -> list[Effect]:
            match decision:
                case Create():
                    parent = decision.parent and self._store.trial(experiment.number, decision.parent)
                    return [created(experiment, decision, parent or None)]
                case Resume():
                    return self._on(experiment, decision.trial, decision)
            return []

        trials = self._happen(experiment, known, Vacancy(), effects)
        return trials[0] if trials else None

    def _take_all(self, experiment: Experiment, known: SearchState) -> bool:
        before = known.entries
        for report in self._store.validations(experiment.number, known.heard):
            self._take_report(experiment, known, report)
            known.heard = report.seq  # also for reports that the search ignores, so that they are not read again
        self._see_checkpoints(experiment, known)
        self._see_ended(experiment, known)
        if known.failure is not None:
            self._happen(experiment, known, Failed(message=known.failure[:SAID]))
        return known.entries > before

    def _see_checkpoints(self, experiment: Experiment, known: SearchState) -> None:
        searcher = known.searcher
        if not isinstance(searcher, Follower) or searcher.ended or experiment.number in self._left:
            return
        news = self._followed.news(experiment, known.read)
        for checkpoint in news.checkpoints:
            if not searcher.knows(checkpoint):
                self._happen(experiment, known, Followed(checkpoint=checkpoint))
        if news.ended or not experiment.config.records:
            self._happen(experiment, known, Followed())
        known.read = news.seq  # only now: what could not be stored is read again

    def _leave(self, experiment: Experiment, known: SearchState) -> None:
        self._followed.leave(experiment)
        self._left.add(experiment.number)

    def _of(self, experiment: Experiment, ended: bool = False) -> SearchState | None:
        """Return the state of a search, from memory or rebuilt by replaying the search's log.

        None if the experiment has ended, unless `ended` is set.
        """
        known = self._known.get(experiment.number)
        if known is None:
            experiment = self._store.experiment(experiment.number)  # it may have been extended or have ended since
            if experiment.state in EXPERIMENT_ENDED and not ended:
                return None
            process = self._process_of(experiment)
            known = SearchState(make(settings_of(experiment), experiment.space, process), process=process)
            while page := self._store.search_log(experiment.number, known.entries, LOG_PAGE):
                replay(known.searcher, page)
                for entry in page:
                    known.take(entry)
            self._known[experiment.number] = known
            if known.entries == 0:
                self._begin(experiment, known)
        return known

    def _begin(self, experiment: Experiment, known: SearchState) -> None:
        """Write the first entries of a search's log: the results of earlier experiments that it uses (prior data).

        They are written in one transaction.
        """
        now, entries = time.time(), list[LogEntry]()
        trials = warm_start.prior_results(self._store, experiment.config, experiment.space)
        with self._believing(experiment):
            for number, event in enumerate(prior_events(trials), 1):
                entries.append(
                    LogEntry(number=number, at=now, event=event, decision=apply_event(known.searcher, event))
                )
            self._store.record(experiment.number, entries, at=now)
        for entry in entries:
            known.take(entry)

    def _process_of(self, experiment: Experiment) -> ClosableProcess | None:
        if not is_custom(experiment):
            return None
        failure = failure_in(self._store.search_log(experiment.number))
        return self._process(experiment) if failure is None else FailedSearchProcess(failure)

    def _drop_locked(self, number: int) -> None:
        with self._lock(number):
            self._drop(number)

    def _drop(self, number: int) -> None:
        known = self._known.pop(number, None)
        self._failures.pop(number, None)
        if known is not None and known.process is not None:
            known.process.close()

    def _paused(self, experiment: Experiment, besides: int | None = None) -> list[Effect]:
        """Return the changes (effects) that pause all active trials of a search, except trial `besides`."""
        trials = (trial for trial in self._store.restless_trials(experiment.number) if trial.index != besides)
        return [paused for trial in trials if (paused := held(trial)) is not None]

    def _see_ended(self, experiment: Experiment, known: SearchState) -> None:
        count = self._ended(experiment)
        if count == known.looked:
            return  # the usual case; there may be thousands of trials
        for outline in self._store.outlines(experiment.number):
            if outline.state in TRIAL_ENDED and outline.index not in known.ended:
                trial = self._store.trial(experiment.number, outline.index)
                event = self._exit(experiment, trial)
                if event is not None:
                    self._happen(experiment, known, event)
        known.looked = count

    def _exit(self, experiment: Experiment, trial: Trial) -> Reported | Exited | None:
        """Return what the end of a trial is for its search; None if its last value comes from an evaluation."""
        if experiment.config.follows:
            value = self._followed.measured(experiment, trial)
            if value is not None:
                return Reported(trial=trial.index, unit=1, value=value)
        elif experiment.config.await_evaluation and trial.state is TrialState.COMPLETED:
            return None
        return Exited(trial=trial.index, reason=exit_reason(trial))

    def _ended(self, experiment: Experiment) -> int:
        counts = self._store.trial_counts(experiment.number)
        return sum(counts.get(state, 0) for state in TRIAL_ENDED)

    def _take_report(self, experiment: Experiment, known: SearchState, report: StoredReport) -> None:
        if experiment.config.follows:
            return  # its trials count when they have ended
        unit = settings.unit_of(experiment.config, report)
        value = experiment.config.metric.of(report.metrics)
        if unit is not None and value is not None:
            event = Reported(trial=report.trial, unit=unit, value=value, seq=report.seq)
            self._happen(experiment, known, event, lambda decision: self._on(experiment, report.trial, decision))

    def _on(self, experiment: Experiment, trial: int, decision: Decision | None) -> list[Effect]:
        found = effect(decision, self._store.trial(experiment.number, trial))
        return [found] if found is not None else []

    def _happen(
        self,
        experiment: Experiment,
        known: SearchState,
        event: Happening,
        effects: Callable[[Decision | None], Sequence[Effect]] = lambda decision: (),
    ) -> list[Trial]:
        """Pass an event, such as a report, to the searcher; store it with the decision that the searcher makes, if any.

        `effects` converts the decision to changes of trials, which are stored in the same transaction. Returns the
        changed trials.
        """
        with self._believing(experiment):
            decision = apply_event(known.searcher, event)
            entry = LogEntry(number=known.entries + 1, at=time.time(), event=event, decision=decision)
            trials = self._store.record(experiment.number, [entry], effects(decision), at=entry.at)
        known.take(entry)
        return trials

    @contextlib.contextmanager
    def _believing(self, experiment: Experiment) -> Iterator[None]:
        """Drop the searcher in memory if the block raises, as it may then differ from the log; the log rebuilds it."""
        try:
            yield
        except Exception:
            self._drop(experiment.number)
            raise
