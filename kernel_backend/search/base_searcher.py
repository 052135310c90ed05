"""Implement what all searchers need: progress of trials, selection of reports, and operations by users.

At any time a trial is training, paused or ended. Subclasses decide which trial gets a free slot, and how a trial
proceeds at its target.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from kernel_backend.errors import Conflict
from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Reason, Resume, Verdict
from kernel_backend.search.observations import Observations


@dataclass(kw_only=True)
class Progress:
    """Progress of a trial in units; if it is paused below its target, it was interrupted.

    Parameters
    ----------
    until : int
        Target: the unit at whose end the search decides.
    reached : int, default 0
        Unit up to which it has trained.
    end : Complete or Prune, optional
        Decision that ended it.

    Examples
    --------
    >>> from daylight.search import Progress
    >>> Progress(until=9).reached
    0
    """

    until: int
    reached: int = 0
    end: Complete | Prune | None = None


P = TypeVar("P", bound=Progress)


class BaseSearcher(ABC, Generic[P]):
    """Base class of searchers that compare trials before their end; subclasses make the decisions.

    A subclass defines `_wanted` (how many gangs it could use), `_choose` (the next decision, without changing
    anything), `_begun` (the progress of a new trial), `_record` (the first value at a unit), `_judge` (the decision
    about a trial at its target), `_target` (the next target), `_forget` and `_fail` (an invalid or failed trial).
    Helpers are `_left` (how many new trials may be created) and `_waiting` (paused trials to resume first).

    Parameters
    ----------
    units : int
        Units (epochs or steps) of a whole training.
    seen : Observations
        Trials and results so far; this base class adds to them.
    trials : int or None
        Number of trials in all; None for as many as the budget allows.

    Examples
    --------
    Prune each trial that is worse than the median at half of its training:

    >>> from statistics import median
    >>> from daylight.search import BaseSearcher, Choices, Continue, Create, Encoder, Observations, Parameter
    >>> from daylight.search import Progress, Prune, RandomSampler, Resume, Space
    >>> class Halfway(BaseSearcher[Progress]):
    ...     def __init__(self, units, space, trials):
    ...         super().__init__(units, Observations(Encoder(space), "min", []), trials)
    ...         self._half, self._values, self._sampler = units // 2, {}, RandomSampler(seed=0)
    ...     def _wanted(self):
    ...         return len(self._waiting()) + self._left()
    ...     def _choose(self):
    ...         for trial in self._waiting():
    ...             return Resume(trial=trial, until=self._target(self._trials[trial]))
    ...         number = len(self._trials) + 1
    ...         if self._left():
    ...             return Create(trial=number, params=self._sampler.ask(number, self._seen), until=self._half)
    ...     def _begun(self, decision):
    ...         return Progress(until=decision.until)
    ...     def _record(self, trial, known, unit, value):
    ...         if unit >= self._half:
    ...             self._values.setdefault(trial, self._seen.lower(value))
    ...     def _judge(self, trial, known):
    ...         good = self._values[trial] <= median(self._values.values())
    ...         return Continue(until=self._units) if good else Prune()
    ...     def _target(self, known):
    ...         return self._half if known.reached < self._half else self._units
    ...     def _forget(self, trial, known):
    ...         self._values.pop(trial, None)
    ...     def _fail(self, trial, known):
    ...         self._values[trial] = float("inf")
    >>> space = Space(parameters=(Parameter(name="act", domain=Choices(values=("relu", "gelu"))),))
    >>> searcher = Halfway(units=8, space=space, trials=2)
    >>> [searcher.on_slot().until for _ in range(2)]
    [4, 4]
    >>> searcher.on_report(1, 4, 0.2).type, searcher.on_report(2, 4, 0.7).type
    ('continue', 'prune')
    >>> searcher.on_report(1, 8, 0.1).type, searcher.over()
    ('complete', True)
    """

    # Consecutive trials that end so without a report, after which no more are created: they would fail, too.
    hopeless: ClassVar[Mapping[Reason, int]] = {"failed": 20, "invalid": 100}

    def __init__(self, units: int, seen: Observations, trials: int | None) -> None:
        """Create a searcher without trials."""
        self._units, self._seen, self._most = units, seen, trials
        self._trials: dict[int, P] = {}
        self._paused = set[int]()  # paused trials; those that train are in `seen.training`
        self._chosen: dict[int, None] = {}  # trials to resume next, in order: promoted by users, or interrupted
        self._asked = 0  # number of the newest proposal
        self._invalid = 0
        self._in_vain = Counter[Reason]()  # consecutive failures, by reason
        self._closed = False

    # Assigning free gangs

    def wants(self) -> int:
        """Return how many more gangs (sets of slots, each for one trial) the search could use now.

        Returns
        -------
        int
            Number of gangs; 0 if the search is closed.
        """
        return 0 if self._closed else self._wanted()

    @abstractmethod
    def _wanted(self) -> int: ...

    def on_slot(self) -> Create | Resume | None:
        """Decide which trial gets a gang (the slots to train one trial) that the scheduler has granted to the search.

        Returns
        -------
        Create, Resume or None
            A new trial, or a paused one; None if the search is closed or has nothing to train.
        """
        decision = None if self._closed else self._choose()
        if decision is not None:
            self.granted(decision)
        return decision

    @abstractmethod
    def _choose(self) -> Create | Resume | None:
        """Return the next decision without changing any state; `granted` applies it."""

    def _waiting(self) -> list[int]:
        """Return the paused trials that resume first: promoted by users, or interrupted below their target.

        Such trials that are still training are left out: they continue in the slots that they hold.
        """
        return [trial for trial in self._chosen if trial in self._paused]

    def _left(self) -> int:
        """Return how many new trials may still be created."""
        if any(self._in_vain[reason] >= most for reason, most in self.hopeless.items()):
            return 0
        return sys.maxsize if self._most is None else max(0, self._most - self._counted())

    def _counted(self) -> int:
        return len(self._trials) - self._invalid

    def granted(self, decision: Create | Resume) -> None:
        """Apply a decision that `on_slot` made.

        Parameters
        ----------
        decision : Create or Resume
            The decision.
        """
        trial = decision.trial
        if isinstance(decision, Create):
            self._trials[trial] = self._begun(decision)
            self._asked = max(self._asked, trial)
            self._seen.begin(trial, decision.params)
        else:
            self._chosen.pop(trial, None)
            self._paused.discard(trial)
            self._go_on(trial, self._trials[trial], decision.until)
        self._seen.train(trial)

    @abstractmethod
    def _begun(self, decision: Create) -> P:
        """Return the initial progress of the trial that `decision` creates; the trial is not in `_trials` yet."""

    # Reports of trials

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        """Process a trial's report, and decide whether the trial continues, pauses or ends.

        Parameters
        ----------
        trial : int
            Number of the trial.
        unit : int
            Unit (epoch or step) at whose end it reports.
        value : float
            The metric as reported; it may be NaN or infinite.

        Returns
        -------
        Continue, Pause, Prune or Complete
            The decision at the trial's target; before that, to continue.
        """
        known = self._trials.get(trial)
        if known is None:  # a result of another search
            self._seen.report(trial, unit, value)
            return Complete()
        if unit > known.reached and known.end is None:
            self._in_vain.clear()
            self._seen.report(trial, unit, value)
            self._record(trial, known, unit, value)
            arrives, known.reached = known.reached < known.until <= unit, unit
            if unit >= self._units:
                self._end(trial, known, Complete())
            elif arrives:
                self._arrive(trial, known)
        return known.end or (Continue(until=known.until) if trial in self._seen.training else Pause())

    @abstractmethod
    def _record(self, trial: int, known: P, unit: int, value: float) -> None:
        """Record a trial's value at the end of `unit`, which is beyond all units that the trial has reported before.

        `known.reached` still is the unit of the report before this one.
        """

    def _arrive(self, trial: int, known: P) -> None:
        """Decide about a trial that has reached its target, and apply the decision: it continues, pauses or is pruned.

        `known` is what the search method stores about the trial. If the decision is to continue, but the trial was
        paused before its report arrived, the trial is among the first to resume.
        """
        chosen, trains = trial in self._chosen, trial in self._seen.training
        self._chosen.pop(trial, None)
        verdict = Continue(until=self._target(known)) if chosen and trains else self._judge(trial, known)
        if isinstance(verdict, Prune):
            self._end(trial, known, verdict)
        elif isinstance(verdict, Pause):
            self._rest(trial)
        elif trains:
            self._go_on(trial, known, verdict.until)
        else:
            self._chosen[trial] = None

    @abstractmethod
    def _judge(self, trial: int, known: P) -> Continue | Pause | Prune:
        """Return the decision about a trial at its target.

        It is not called for a trial that a user has promoted while it was training.
        """

    @abstractmethod
    def _target(self, known: P) -> int:
        """Return the next target of a trial, given the unit that it has reached."""

    def _go_on(self, trial: int, known: P, until: int) -> None:
        known.until = until

    def _rest(self, trial: int) -> None:
        self._seen.rest(trial)
        self._paused.add(trial)

    def _end(self, trial: int, known: P, end: Complete | Prune) -> None:
        self._seen.rest(trial)
        self._paused.discard(trial)
        self._chosen.pop(trial, None)
        known.end = end

    def on_exit(self, trial: int, reason: Reason) -> None:
        """Process the end of a trial that was not decided by the search.

        A failed trial counts as the worst result at its target unit; an invalid trial is dropped.

        Parameters
        ----------
        trial : int
            Number of the trial.
        reason : {"failed", "invalid", "stopped", "pruned"}
            Reason of its end.
        """
        known = self._trials.get(trial)
        if known is None or known.end:
            return
        self._end(trial, known, Prune())
        self._in_vain[reason] += 1
        if reason == "invalid":
            self._invalid += 1
            self._seen.forget(trial)
            self._forget(trial, known)
        elif reason == "failed":  # if it has a value at its target, that value counts
            self._seen.fail(trial, known.until)
            self._fail(trial, known)

    @abstractmethod
    def _forget(self, trial: int, known: P) -> None:
        """Remove all results of a trial whose hyperparameters were invalid."""

    @abstractmethod
    def _fail(self, trial: int, known: P) -> None:
        """Record that a trial has failed; most subclasses record the worst result for it."""

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """Record the hyperparameters with which a trial really runs; they may differ from those proposed.

        Parameters
        ----------
        trial : int
            Number of the trial.
        params : dict of str to Any
            Hyperparameters by name.
        """
        self._seen.begin(trial, params)

    # Manual steering

    def promote(self, trial: int) -> None:
        """Promote a trial: a paused one gets the next gang, one that trains continues beyond its target.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Raises
        ------
        Conflict
            The trial has ended, or belongs to another search.
        """
        known = self._trials.get(trial)
        if known is None or known.end:
            raise Conflict(f"trial {trial} {'has ended' if known else 'is none of this search'}: it cannot go on")
        self._chosen.setdefault(trial)

    def extend(self, trials: int | None) -> None:
        """Set the total number of trials, and allow new trials again after too many failures.

        Parameters
        ----------
        trials : int or None
            Number of trials in total; None for no limit.

        Raises
        ------
        Conflict
            There are more trials already.
        """
        if trials is not None and trials < self._counted():
            raise Conflict(f"{trials} trials requested, and there are {self._counted()} already")
        self._most, self._closed = trials, False
        self._in_vain.clear()

    def close(self) -> None:
        """Close the search: it uses no more gangs. If it is extended later, trials that train now resume first."""
        self._closed = True
        for trial in sorted(self._seen.training):
            self._rest(trial)
            self._chosen.setdefault(trial)

    def over(self) -> bool:
        """Return whether the search has ended.

        Returns
        -------
        bool
            True if no trial trains, and none will be started.
        """
        return not self._seen.training and self.wants() == 0
