"""Implement asynchronous successive halving (Li et al., MLSys 2020) with promotions, and Hyperband's brackets.

Trials train to a rung and pause there. When a gang is free, the best paused trial that is among the best 1/eta of
*all results ever recorded* in its rung is promoted to the next rung, from its checkpoint; a new trial is created only
if none can be promoted. Trials therefore never wait for each other, and a trial that was not promoted may be promoted
later, when its rank allows it. Searches without early stopping (random, grid, model-based) use the same code with the
single rung R.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume, Settings
from kernel_backend.model.search.space import Space
from kernel_backend.search import brackets as ladders
from kernel_backend.search.base import Plan
from kernel_backend.search.base_searcher import BaseSearcher, Progress
from kernel_backend.search.brackets import Bracket
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.observations import Observations
from kernel_backend.search.rungs import WORST, rung_units
from kernel_backend.search.samplers.base import Sampler
from kernel_backend.search.sampling import sampler_of


@dataclass(kw_only=True)
class _Climber(Progress):
    bracket: Bracket


class Asha(BaseSearcher[_Climber]):
    """Searcher for asynchronous successive halving.

    At a rung (a training length at which trials are compared), all but the best trials pause. With `settings.stopping`
    they are pruned instead, and never resumed.
    """

    def __init__(
        self,
        settings: Settings,
        brackets: list[Bracket],
        sampler: Sampler,
        seen: Observations,
        trials: int | None,
        asks: int = sys.maxsize,
    ) -> None:
        """Create a searcher that starts `trials` trials in total (None: as many as the budget allows).

        New trials are distributed over `brackets` by their weights. `asks` is the largest number of proposals that the
        sampler can make, such as the size of a grid.
        """
        super().__init__(settings.units, seen, trials)
        self._eta, self._stopping = settings.eta, settings.stopping
        self._spends = settings.ends_by_use
        self.brackets, self._sampler, self._asks = tuple(brackets), sampler, asks
        self._filling = set[int]()  # trials that train only to keep a slot busy
        self._ladder = sorted((rung for bracket in brackets for rung in bracket.rungs), key=lambda rung: -rung.unit)

    # Assigning free gangs

    def _wanted(self) -> int:
        """Return how many gangs the search could use: one for each new trial, and for each paused trial to resume.

        If there are no such trials, 1 if a paused trial can train on a slot that would otherwise be idle, else 0.
        """
        return self._new() + len(set(self._going())) or int(self._pastime() is not None)

    def _new(self) -> int:
        return min(self._left(), self._asks - self._asked)

    def _going(self) -> Iterator[int]:
        """Yield the paused trials in the order in which they resume: first those promoted by users or interrupted.

        Promotable trials follow, sorted by rung, the highest first.
        """
        rungs = () if self._stopping else self._ladder
        promotable = (rung.promotable(self._eta) for rung in rungs)
        return chain(self._waiting(), (trial for trial in promotable if trial is not None))

    def _choose(self) -> Create | Resume | None:
        """Return the next decision: resume a trial (`_going`), else create one, else use an idle slot (`_pastime`).

        None if there is nothing to train.
        """
        trial = next(self._going(), None)
        if trial is None and self._new():
            number = self._asked + 1
            bracket = min(self.brackets, key=lambda bracket: (bracket.begun + 1) / bracket.weight)
            return Create(trial=number, params=self._sampler.ask(number, self._seen), until=bracket.rungs[0].unit)
        trial = self._pastime() if trial is None else trial
        return None if trial is None else Resume(trial=trial, until=self._target(self._trials[trial]))

    def _pastime(self) -> int | None:
        """Return the best paused trial of the highest rung, to train on a slot that would otherwise be idle.

        Such a trial continues if no trial has been trained to the end yet, if a promoted trial is still training, or if
        the search ends only when its budget is used up. Otherwise, and always with `stopping`, None is returned.
        """
        whole = any(bracket.rungs[-1].best < WORST for bracket in self.brackets)
        earned = len(self._seen.training) > len(self._filling)
        if self._stopping or not (self._spends or earned or not whole):
            return None
        return next((trial for rung in self._ladder if (trial := rung.best_waiting()) is not None), None)

    def _target(self, known: _Climber) -> int:
        return known.bracket.above(known.reached).unit

    def _begun(self, decision: Create) -> _Climber:
        bracket = next(bracket for bracket in self.brackets if bracket.rungs[0].unit == decision.until)
        bracket.begun += 1
        return _Climber(until=decision.until, bracket=bracket)

    def granted(self, decision: Create | Resume) -> None:
        """Apply a decision that `on_slot` made."""
        fills = isinstance(decision, Resume) and decision.trial not in self._going()
        super().granted(decision)
        if fills:
            self._filling.add(decision.trial)

    # Reports of trials

    def _record(self, trial: int, known: _Climber, unit: int, value: float) -> None:
        """Record the value in every rung that the trial has reached since its last report.

        Afterwards the trial can be promoted only out of the highest of these rungs.
        """
        passed = [rung for rung in known.bracket.rungs if known.reached < rung.unit <= unit]
        for rung in passed:
            rung.record(trial, self._seen.lower(value))
        if passed:
            known.bracket.leave(trial, passed[-1].unit - 1)

    def _judge(self, trial: int, known: _Climber) -> Continue | Pause | Prune:
        rung = known.bracket.below(known.reached)
        if rung.stays(trial, self._eta) if self._stopping else rung.promotable(self._eta) == trial:
            return Continue(until=self._target(known))
        return Prune() if self._stopping else Pause()

    def _go_on(self, trial: int, known: _Climber, until: int) -> None:
        super()._go_on(trial, known, until)
        known.bracket.leave(trial, known.reached)
        self._filling.discard(trial)

    def _rest(self, trial: int) -> None:
        super()._rest(trial)
        self._filling.discard(trial)

    def _end(self, trial: int, known: _Climber, end: Complete | Prune) -> None:
        super()._end(trial, known, end)
        known.bracket.leave(trial, self._units)
        self._filling.discard(trial)

    def _forget(self, trial: int, known: _Climber) -> None:
        known.bracket.begun -= 1
        for rung in known.bracket.rungs:
            rung.forget(trial)

    def _fail(self, trial: int, known: _Climber) -> None:
        known.bracket.below(known.until).record(trial, WORST)


# Factories of the search methods


def sampled(settings: Settings, space: Space, sampler: Sampler) -> Asha:
    """Make a searcher that trains what a sampler proposes, each trial to its end.

    Parameters
    ----------
    settings : Settings
        Number of trials, length of a training, and whether lower or higher values are better.
    space : Space
        Search space.
    sampler : Sampler
        Sampler that proposes new trials.

    Returns
    -------
    Searcher
        The searcher, with no trial yet.

    Examples
    --------
    >>> from daylight.search import Parameter, Range, Settings, Space, sampled
    >>> class Middle:
    ...     def ask(self, number, seen):
    ...         return seen.encoder.decode([0.5 for _ in seen.encoder.dimensions])
    >>> width = Parameter(name="width", domain=Range(low=1, high=9, whole=True))
    >>> settings = Settings(method="random", units=10, trials=4)
    >>> sampled(settings, Space(parameters=(width,)), Middle()).on_slot().params
    {'width': 5}
    """
    brackets = [Bracket([settings.units], 1.0)]
    return Asha(settings, brackets, sampler, _observations(settings, space, brackets), settings.limit)


def plain_searcher(settings: Settings, space: Space) -> Asha:
    """Return a searcher that trains each trial to its end, with proposals of the configured sampler."""
    return _searcher(settings, space, [Bracket([settings.units], 1.0)], settings.limit)


def asha_searcher(settings: Settings, space: Space) -> Asha:
    """Return an ASHA searcher with the brackets that `--brackets` selects."""
    return _searcher(settings, space, _asha_brackets(settings), settings.limit)


def hyperband_searcher(settings: Settings, space: Space) -> Asha:
    """Return a searcher that runs all Hyperband brackets concurrently: once each, unless trials or a budget are set."""
    brackets = _hyperband_brackets(settings)
    return _searcher(settings, space, brackets, _hyperband_trials(settings, brackets))


def asha_plan(settings: Settings, space: Space) -> Plan:
    """Return an upper bound of the training in an ASHA search, for a dry run."""
    return _plan(_asha_brackets(settings), settings.limit, settings.limit)


def hyperband_plan(settings: Settings, space: Space) -> Plan:
    """Return an upper bound of the training in a Hyperband search, for a dry run.

    Without `--trials` its brackets limit it.
    """
    brackets = _hyperband_brackets(settings)
    return _plan(brackets, settings.limit, _hyperband_trials(settings, brackets))


def _searcher(settings: Settings, space: Space, brackets: list[Bracket], trials: int | None) -> Asha:
    seen = _observations(settings, space, brackets)
    return Asha(settings, brackets, sampler_of(settings, len(seen.encoder.dimensions)), seen, trials)


def _observations(settings: Settings, space: Space, brackets: list[Bracket]) -> Observations:
    units = [rung.unit for bracket in brackets for rung in bracket.rungs]
    return Observations(Encoder(space), settings.mode, units)


def _asha_brackets(settings: Settings) -> list[Bracket]:
    units = rung_units(settings.units, settings.eta, settings.first_rung)
    if settings.brackets == "aggressive":
        return ladders.with_late_bloomers(units, settings.eta)
    return ladders.graded(units, settings.eta, settings.brackets)


def _hyperband_brackets(settings: Settings) -> list[Bracket]:
    return ladders.hyperband(rung_units(settings.units, settings.eta, settings.first_rung), settings.eta)


def _hyperband_trials(settings: Settings, brackets: list[Bracket]) -> int | None:
    if settings.limit is None and not settings.ends_by_use:
        return round(sum(bracket.weight for bracket in brackets))
    return settings.limit


def _plan(brackets: list[Bracket], told: int | None, trials: int | None) -> Plan:
    shortest = min(bracket.rungs[0].unit for bracket in brackets)
    return Plan(told, shortest, (trials or 0) * max(len(bracket.rungs) for bracket in brackets))
