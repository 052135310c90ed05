"""Implement population-based training (Jaderberg et al. 2017, arXiv:1711.09846), asynchronously.

The members of a population train in rounds of some units. A trial that is among the worst fifth of all results at the
end of a round is replaced by a copy of one of the best fifth: it starts from that trial's newest checkpoint, with
slightly changed hyperparameters. Trials do not wait for each other. If there are fewer slots than members, members
pause after each round; the least trained one resumes first and is judged then, when most others have reached its
unit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from random import Random

from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Domain
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume, Settings
from kernel_backend.model.search.space import Space
from kernel_backend.search.base import Plan
from kernel_backend.search.base_searcher import BaseSearcher, Progress
from kernel_backend.search.encoding import Encoder, codec
from kernel_backend.search.observations import Observations
from kernel_backend.search.rungs import WORST, Ranking
from kernel_backend.search.samplers.base import Sampler, stream
from kernel_backend.search.sampling import sampler_of

POPULATION = 16
ROUNDS = 20  # rounds of a complete training
FIFTH = 5  # the best and the worst are one fifth each
RESAMPLED = 0.25  # fraction of a copy's hyperparameters that are drawn again; others change by a factor of 0.8 or 1.2
FACTORS = (0.8, 1.2)


def pbt_searcher(settings: Settings, space: Space) -> Pbt:
    """Return the searcher of population-based training."""
    seen = Observations(Encoder(space), settings.mode, [settings.units])
    return Pbt(settings, space, sampler_of(settings, len(seen.encoder.dimensions)), seen)


def pbt_plan(settings: Settings, space: Space) -> Plan:
    """Return an upper bound of the training, for a dry run: each member of the population is trained to the end."""
    population = settings.population or POPULATION
    trials = min(population, settings.trials or population)
    return Plan(trials, settings.units, trials * (settings.units // interval_of(settings)))


class Pbt(BaseSearcher[Progress]):
    """Searcher that trains a population of trials.

    Each place in the population is free, or has one trial that trains or is paused.
    """

    hopeless = {"failed": 20, "invalid": 20}  # a failed trial frees its position for another

    def __init__(self, settings: Settings, space: Space, sampler: Sampler, seen: Observations) -> None:
        """Create the searcher; `sampler` proposes the hyperparameters of the first members."""
        super().__init__(settings.units, seen, settings.trials)
        interval = interval_of(settings)
        self._rounds: list[int] = [*range(interval, settings.units, interval), settings.units]
        self._rankings = {unit: Ranking() for unit in self._rounds}
        self._seed, self._sampler = settings.seed, sampler
        self._domains = {(each.each, each.name): each.domain for each in space.parameters}
        self._population = settings.population or POPULATION
        # Free positions: the unit at which the last holder ended, 0 to start from the beginning.
        self._free = [0] * self._population

    # Assigning free gangs

    def _wanted(self) -> int:
        """Return how many gangs could be used: by paused trials, and by new trials for free places."""
        return len(self._paused) + len(self._open())

    def _open(self) -> list[int]:
        """Return, for each new trial that may take a free place in the population, the unit at which it starts.

        The units are in ascending order. There are at most as many as new trials are still allowed.
        """
        return sorted(self._free)[: self._left()]

    def _choose(self) -> Create | Resume | None:
        """Return the decision for the place in the population that has trained least.

        Its trial is resumed, or replaced by a copy of a better one. None if no trial can use a gang.
        """
        if not self._wanted():
            return None
        trial, unit = self._next()
        if trial is not None and not self._gives_way(trial):
            return Resume(trial=trial, until=self._target(self._trials[trial]))
        return self._create(unit, instead_of=trial)

    def _next(self) -> tuple[int | None, int]:
        """Return the trial that is to train next (None for a free place), and the unit at which its last round ended.

        Promoted and interrupted trials come first, then the place in the population that has trained least.
        """
        for trial in self._waiting():
            return trial, self._round(trial)
        waiting = [(self._round(trial), trial) for trial in self._paused] + [(unit, 0) for unit in self._open()]
        unit, first = min(waiting)
        return first or None, unit

    def _create(self, unit: int, instead_of: int | None) -> Create:
        number = self._asked + 1
        parents = self._parents(unit, instead_of)
        if not parents:
            return Create(trial=number, params=self._sampler.ask(number, self._seen), until=self._rounds[0])
        random = stream(self._seed, number)
        parent = random.choice(parents)
        params, until = self._changed(parent, random), self._target(self._trials[parent])
        return Create(trial=number, params=params, until=until, parent=parent)

    def _round(self, trial: int) -> int:
        """Return the unit at which a trial's last completed round ended; 0 before the first."""
        ended = bisect_right(self._rounds, self._trials[trial].reached)
        return self._rounds[ended - 1] if ended else 0

    def _target(self, known: Progress) -> int:
        return self._rounds[bisect_right(self._rounds, known.reached)]

    def _parents(self, unit: int, instead_of: int | None) -> list[int]:
        """Return the best fifth of trials at a unit, without those that cannot be copied.

        A trial can be copied if its result is finite, it has not ended, and it is not `instead_of`.
        """
        ranking = self._rankings.get(unit)
        if ranking is None:
            return []
        best = ranking.places[: max(1, self._share(ranking))]
        return [trial for value, trial in best if value < WORST and trial != instead_of and not self._trials[trial].end]

    def _gives_way(self, trial: int) -> bool:
        """Return whether a trial is to be replaced by a copy of a better one.

        It must be among the worst fifth, and there must be a better one that can be copied.
        """
        unit = self._round(trial)
        ranking = self._rankings.get(unit)
        if ranking is None or trial not in ranking or trial in self._chosen or not self._left():
            return False
        rank = ranking.rank(trial)
        bad = rank >= len(ranking) - self._share(ranking) or ranking.places[rank].value == WORST
        return bad and bool(self._parents(unit, trial))

    def _share(self, ranking: Ranking) -> int:
        """Return a fifth of the number of results, but at least 1 once all members of the population have a result."""
        return len(ranking) // FIFTH or (1 if len(ranking) >= self._population else 0)

    def _begun(self, decision: Create) -> Progress:
        """Return the initial progress of a new trial: that of its parent, or none without a parent.

        The trial takes the place in the population that `_next` returns; a trial that holds this place is pruned.
        """
        trial, unit = self._next()
        if trial is not None:
            self._end(trial, self._trials[trial], Prune())
        self._free.remove(unit)
        return Progress(until=decision.until, reached=self._round(decision.parent) if decision.parent else 0)

    # Copying trials

    def _changed(self, parent: int, random: Random) -> dict[str, Value]:
        """Return the hyperparameters of a copy: the parent's, each slightly changed or, sometimes, drawn anew."""
        encoder = self._seen.encoder
        point = []
        for each, at in zip(encoder.dimensions, encoder.encode(self._seen.params[parent]), strict=True):
            anew, up = random.random() < RESAMPLED or math.isnan(at), random.random() < 0.5
            point.append(random.random() if anew else shifted(self._domain(each.name), at, up))
        return encoder.decode(point)

    def _domain(self, dimension: str) -> Domain:
        """Return the values (range or choices) of the parameter that belongs to a coordinate of the unit cube.

        `dimension` is the coordinate's name: `lr`, or `blocks[2].kind` for a parameter of a block.
        """
        blocks, bracket, inner = dimension.partition("[")
        return self._domains[(blocks, inner.partition("].")[2]) if bracket else (None, dimension)]

    # Reports of trials

    def _record(self, trial: int, known: Progress, unit: int, value: float) -> None:
        """Record a value in the ranking of every round that this report completes."""
        for ended in self._rounds[bisect_right(self._rounds, known.reached) : bisect_right(self._rounds, unit)]:
            self._rankings[ended].record(trial, self._seen.lower(value))

    def _judge(self, trial: int, known: Progress) -> Continue | Pause | Prune:
        """Return the decision about a trial at the end of a round.

        It pauses while others have trained less, is pruned if a copy is to replace it, or continues.
        """
        unit = self._round(trial)
        if any(each < unit for each in (*map(self._round, self._paused), *self._open())):
            return Pause()
        return Prune() if self._gives_way(trial) else Continue(until=self._target(known))

    def _end(self, trial: int, known: Progress, end: Complete | Prune) -> None:
        """Free the place of a trial that ended early, so that another one may take it."""
        super()._end(trial, known, end)
        if isinstance(end, Prune):
            self._free.append(self._round(trial))

    def _forget(self, trial: int, known: Progress) -> None:
        for ranking in self._rankings.values():
            ranking.forget(trial)
        self._free[-1] = 0  # the next trial in its position starts from the beginning

    def _fail(self, trial: int, known: Progress) -> None:
        self._rankings[known.until].record(trial, WORST)

    # Manual steering

    def extend(self, trials: int | None) -> None:
        """Set the total number of trials; the places of completed trials become free for new ones."""
        super().extend(trials)
        held = len(self._paused) + len(self._seen.training) + len(self._free)
        self._free += [0] * (self._population - held)


def interval_of(settings: Settings) -> int:
    """Return the length of a round of population-based training in units."""
    return settings.interval or max(1, settings.units // ROUNDS)


def shifted(domain: Domain, at: float, up: bool) -> float:
    """Return the coordinate, in [0, 1], of 1.2 times (`up`) or 0.8 times the value at coordinate `at`.

    A choice becomes a neighbouring choice. Numbers stay within their range; integers change by at least 1, powers of
    two by a factor of 2.
    """
    if isinstance(domain, Choices):
        count = len(domain.values)
        chosen = min(int(at * count), count - 1)
        neighbour = chosen + 1 if (up and chosen < count - 1) or chosen == 0 else chosen - 1
        return (neighbour + 0.5) / count
    value, unit = codec(domain)
    number = value(at)
    assert isinstance(number, int | float)
    if domain.scale == "log2":
        lowest, highest = (2.0**exponent for exponent in domain.exponents)
        return unit(min(max(number * 2 if up else number / 2, lowest), highest))
    step = number * (FACTORS[up] - 1)
    if domain.whole:
        step = round(step) or (1 if up else -1)
    return unit(min(max(number + step, domain.low), domain.high))
