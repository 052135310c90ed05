"""Cache the store's unfinished experiments, trials and attempts, updated from the store's stream of changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from kernel_backend.model.experiment import Experiment, ScheduledExperiment
from kernel_backend.model.states import EXPERIMENT_ENDED, HOLDING_SLOTS, LIVE, AttemptState, Hold, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Attempt, ScheduledTrial, Trial
from kernel_backend.store.base import Scheduled, Store

PAGE = 1000  # messages that are read at once

_Records = ScheduledExperiment | ScheduledTrial | Attempt
_log = logging.getLogger(__name__)
_Key = TypeVar("_Key")
_Record = TypeVar("_Record")


class RecordChange(NamedTuple):
    """Record of an experiment, trial or attempt after a change, with the time of the change."""

    at: float
    record: _Records


class StoreCache:
    """Cache of unfinished experiments, active trials and open attempts, from which the cluster state is computed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seq = 0
        self.experiments: dict[int, ScheduledExperiment] = {}
        self.searches: dict[int, Experiment] = {}  # experiments that are searches
        self.trials: dict[int, dict[int, ScheduledTrial]] = {}  # by experiment and index
        self.attempts: dict[tuple[int, int], Attempt] = {}  # newest open attempt, by experiment and trial
        self.older: dict[tuple[int, int], Attempt] = {}  # earlier attempts that are still open
        self.unsettled: dict[tuple[int, int], Attempt] = {}  # ended attempts whose trials have not advanced yet

    @property
    def open_attempts(self) -> list[Attempt]:
        """Return all attempts that have not ended, in any experiment."""
        return [*self.older.values(), *self.attempts.values()]

    def trial(self, experiment: int, index: int) -> ScheduledTrial | None:
        """Return a trial from the cache; None if it has ended, or if its search has paused it."""
        return self.trials.get(experiment, {}).get(index)

    def live(self, experiment: int) -> int:
        """Return how many trials of an experiment are active: neither paused nor ended."""
        return sum(trial.state in LIVE for trial in self.trials.get(experiment, {}).values())

    def read_all(self) -> Scheduled:
        """Return all unfinished records of the store, to be passed to `fill`.

        Blocks. As only `fill` changes the cache, this may run in a thread.
        """
        seq = self._store.last_seq()  # read first: changes made during the read are then applied again
        scheduled = self._store.scheduled()
        for why in scheduled.unreadable.values():
            _log.error("a record cannot be read, and its experiment is left as it is until the next start: %s", why)
        self._seq = seq
        return scheduled

    def fill(self, scheduled: Scheduled) -> None:
        """Fill an empty cache with all unfinished records, as returned by `read_all`.

        This is five times as fast as adding each record by `take_in`.
        """
        self.experiments = {each.number: each for each in scheduled.experiments}
        self.searches = {
            each.number: each
            for each in scheduled.experiments
            if isinstance(each, Experiment) and each.config.search is not None
        }
        for trial in scheduled.trials:
            self.trials.setdefault(trial.experiment, {})[trial.index] = trial
        for attempt in scheduled.attempts:
            self._take_in_attempt(attempt)

    def read(self) -> list[RecordChange]:
        """Return the records changed in the store since the last call, or since `read_all`, to be passed to `take_in`.

        Blocks. As only `take_in` changes the cache, this may run in a thread.
        """
        changes: list[RecordChange] = []
        while messages := self._store.changes(self._seq, PAGE):
            changes += map(_change, messages)
            self._seq = messages[-1].seq
        return changes

    def take_in(self, changes: Iterable[RecordChange]) -> None:
        """Apply changed records to the cache."""
        for _, record in changes:
            match record:
                case ScheduledExperiment():
                    goes_on = record.state not in EXPERIMENT_ENDED
                    _put(self.experiments, record.number, record, goes_on)
                    if isinstance(record, Experiment):
                        _put(self.searches, record.number, record, goes_on and record.config.search is not None)
                case ScheduledTrial():
                    of_experiment = self.trials.setdefault(record.experiment, {})
                    _put(of_experiment, record.index, record, _restless(record))
                    if not of_experiment:
                        del self.trials[record.experiment]
                    key = record.experiment, record.index
                    if key in self.unsettled and not _is_of(record, self.unsettled[key]):
                        del self.unsettled[key]
                case Attempt():
                    self._take_in_attempt(record)

    def _take_in_attempt(self, attempt: Attempt) -> None:
        key, is_open = (attempt.experiment, attempt.trial), attempt.state is not AttemptState.ENDED
        trial = self.trial(*key)
        if trial is not None and _is_of(trial, attempt):
            _put(self.unsettled, key, attempt, not is_open)
        known = self.attempts.get(key)
        if known is not None and known.number > attempt.number:
            _put(self.older, key, attempt, is_open)
            return
        if known is not None and known.number < attempt.number:
            self.older[key] = known
        _put(self.attempts, key, attempt, is_open)


def _is_of(trial: ScheduledTrial, attempt: Attempt) -> bool:
    """Return whether an attempt is the newest one of the trial, and the trial still holds slots."""
    return trial.attempt == attempt.number and trial.state in HOLDING_SLOTS


def _put(into: dict[_Key, _Record], key: _Key, record: _Record, kept: bool) -> None:
    if kept:
        into[key] = record
    else:
        into.pop(key, None)


def _restless(trial: ScheduledTrial) -> bool:
    return trial.state in LIVE or (trial.state is TrialState.PAUSED and trial.holds != {Hold.SEARCH})


def _change(message: Message) -> RecordChange:
    kinds: dict[str, type[Experiment | Trial | Attempt]] = {
        "experiment": Experiment,
        "trial": Trial,
        "attempt": Attempt,
    }
    return RecordChange(message.at, kinds[message.type].model_validate(message.data))
