"""What all searches do alike: where each trial is, whose word counts, and what a person says by hand.

A trial trains, rests or has ended, and is in one of these places at a time. What searches differ in is who gets a
vacancy, and what becomes of a trial at its target.
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
    """How far a trial is to train, and has, in units; whoever rests with less than its target was interrupted."""

    until: int
    reached: int = 0
    end: Complete | Prune | None = None


P = TypeVar("P", bound=Progress)


class BaseSearcher(ABC, Generic[P]):
    """A searcher but for its decisions."""

    # Trials in a row, with no report between them, after which no new one is made: it would come to nothing, too.
    hopeless: ClassVar[Mapping[Reason, int]] = {"failed": 20, "invalid": 100}

    def __init__(self, units: int, seen: Observations, trials: int | None) -> None:
        """A whole training has so many `units`; there are `trials` in all, or as many as there is a budget for."""
        self._units, self._seen, self._most = units, seen, trials
        self._trials: dict[int, P] = {}
        self._resting = set[int]()  # who trains is among what is seen
        self._chosen: dict[int, None] = {}  # by hand or because they were interrupted: to go on next, in this order
        self._asked = 0  # the number of the newest ask
        self._invalid = 0
        self._in_vain = Counter[Reason]()  # in a row
        self._closed = False

    # Vacancies

    def wants(self) -> int:
        """How many gangs it could use; none where it is closed."""
        return 0 if self._closed else self._wanted()

    @abstractmethod
    def _wanted(self) -> int: ...

    def on_vacancy(self) -> Create | Resume | None:
        """Who gets it; nobody where the search is closed."""
        decision = None if self._closed else self._choose()
        if decision is not None:
            self.granted(decision)
        return decision

    @abstractmethod
    def _choose(self) -> Create | Resume | None:
        """Decide, and change nothing yet."""

    def _waiting(self) -> list[int]:
        """Those who rest and go on before anybody else; who trains goes on at its target without a vacancy."""
        return [trial for trial in self._chosen if trial in self._resting]

    def _left(self) -> int:
        """How many new trials there may be."""
        if any(self._in_vain[reason] >= most for reason, most in self.hopeless.items()):
            return 0
        return sys.maxsize if self._most is None else max(0, self._most - self._counted())

    def _counted(self) -> int:
        return len(self._trials) - self._invalid

    def granted(self, decision: Create | Resume) -> None:
        """Take a decision of `on_vacancy`."""
        trial = decision.trial
        if isinstance(decision, Create):
            self._trials[trial] = self._begun(decision)
            self._asked = max(self._asked, trial)
            self._seen.begin(trial, decision.params)
        else:
            self._chosen.pop(trial, None)
            self._resting.discard(trial)
            self._go_on(trial, self._trials[trial], decision.until)
        self._seen.train(trial)

    @abstractmethod
    def _begun(self, decision: Create) -> P:
        """The new trial, which is none of the search's yet."""

    # What trials say

    def on_report(self, trial: int, unit: int, value: float) -> Verdict:
        """Take in what was not known; what comes of it at its target, or what came of it before."""
        known = self._trials.get(trial)
        if known is None:  # of another search
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
        """Take in the first value at a unit or beyond, before `known` has reached it."""

    def _arrive(self, trial: int, known: P) -> None:
        """At its target it goes on, rests, or is given up. Who was interrupted before may come there all the same."""
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
        """What becomes of a trial at its target, where no person has said it."""

    @abstractmethod
    def _target(self, known: P) -> int:
        """The unit up to which a trial trains from where it is."""

    def _go_on(self, trial: int, known: P, until: int) -> None:
        known.until = until

    def _rest(self, trial: int) -> None:
        self._seen.rest(trial)
        self._resting.add(trial)

    def _end(self, trial: int, known: P, end: Complete | Prune) -> None:
        self._seen.rest(trial)
        self._resting.discard(trial)
        self._chosen.pop(trial, None)
        known.end = end

    def on_exit(self, trial: int, reason: Reason) -> None:
        """A failed trial has the worst value at the unit it was on its way to; an invalid one never was."""
        known = self._trials.get(trial)
        if known is None or known.end:
            return
        self._end(trial, known, Prune())
        self._in_vain[reason] += 1
        if reason == "invalid":
            self._invalid += 1
            self._seen.forget(trial)
            self._forget(trial, known)
        elif reason == "failed":  # the first word counts where it has come to its target before
            self._seen.fail(trial, known.until)
            self._fail(trial, known)

    @abstractmethod
    def _forget(self, trial: int, known: P) -> None:
        """It never was."""

    @abstractmethod
    def _fail(self, trial: int, known: P) -> None:
        """It has failed."""

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """What a trial really has."""
        self._seen.begin(trial, params)

    # By hand

    def promote(self, trial: int) -> None:
        """Let a trial that rests have the next vacancy, and one that trains go on beyond its target."""
        known = self._trials.get(trial)
        if known is None or known.end:
            raise Conflict(f"trial {trial} {'has ended' if known else 'is none of this search'}: it cannot go on")
        self._chosen.setdefault(trial)

    def extend(self, trials: int | None) -> None:
        """Let there be so many trials in all, and try again what was hopeless."""
        if trials is not None and trials < self._counted():
            raise Conflict(f"{trials} trials asked for, and there are {self._counted()} already")
        self._most, self._closed = trials, False
        self._in_vain.clear()

    def close(self) -> None:
        """Want nothing more. Whoever is interrupted is the first to go on if the search is extended."""
        self._closed = True
        for trial in sorted(self._seen.training):
            self._rest(trial)
            self._chosen.setdefault(trial)

    def over(self) -> bool:
        """Whether nothing trains and nothing will."""
        return not self._seen.training and self.wants() == 0
