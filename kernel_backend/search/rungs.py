"""Compute the units of rungs, and rank the results of a rung."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from typing import NamedTuple

MOST_RUNGS = 5
WORST = math.inf


class RankKey(NamedTuple):
    """Sort key of a trial's result: lower values are better; among equal values the older trial is."""

    value: float
    trial: int


def rung_units(units: int, eta: int, first: int | None = None) -> list[int]:
    """Return the units at whose ends trials are compared: first * eta^k below `units`, then `units` itself.

    Without `first` there are at most five rungs. They are computed in integers: floating-point logarithms lose a rung
    if `units` is a power of eta (243 and 3, in Ray).
    """
    least = first or -(-units // eta ** (MOST_RUNGS - 1))
    found = []
    while least < units:
        found.append(least)
        least *= eta
    return [*found, units]


class Ranking:
    """Results of trials, best first, with one result per trial."""

    def __init__(self) -> None:
        self.places: list[RankKey] = []
        self._of: dict[int, RankKey] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, trial: int) -> bool:
        return trial in self._of

    def record(self, trial: int, value: float) -> bool:
        """Record a trial's result (lower is better, `WORST` if it diverged or failed).

        Returns False if the trial has a result already, which stays.
        """
        if trial in self._of:
            return False
        place = self._of[trial] = RankKey(value, trial)
        insort(self.places, place)
        return True

    def forget(self, trial: int) -> None:
        """Remove a trial's result, if there is one."""
        place = self._of.pop(trial, None)
        if place is not None:
            del self.places[bisect_left(self.places, place)]

    def rank(self, trial: int) -> int:
        """Return how many results are better than that of a trial; raises KeyError if the trial has none."""
        return bisect_left(self.places, self._of[trial])


class Rung(Ranking):
    """Ranking of all results at one rung, a unit (epoch or step) at whose end trials are compared.

    A trial that leaves the rung cannot be promoted out of it any more, but its result stays in the ranking.
    """

    def __init__(self, unit: int) -> None:
        super().__init__()
        self.unit = unit
        self._waiting: list[RankKey] = []  # heap; trials that have left are dropped when they come up
        self._left: set[int] = set()

    def record(self, trial: int, value: float) -> bool:
        """Record a trial's result like `Ranking.record`; a trial that has diverged is never promoted."""
        new = super().record(trial, value)
        if new and value < WORST:
            heapq.heappush(self._waiting, self._of[trial])
        return new

    @property
    def best(self) -> float:
        """Return the best result; WORST if no result is finite."""
        return self.places[0].value if self.places else WORST

    def stays(self, trial: int, eta: int) -> bool:
        """Return whether a trial's result is finite and, of n results, among the best max(1, floor(n / eta))."""
        rank = self.rank(trial)
        return self.places[rank].value < WORST and rank < max(1, len(self) // eta)

    def leave(self, trial: int) -> None:
        """Exclude a trial from promotion out of this rung, because it was promoted already or never will be."""
        self._left.add(trial)

    def best_waiting(self) -> int | None:
        """Return the best trial with a finite result that has not left the rung; None if there is none."""
        while self._waiting:
            trial = self._waiting[0].trial
            if trial in self._of and trial not in self._left:
                return trial
            heapq.heappop(self._waiting)
        return None

    def promotable(self, eta: int) -> int | None:
        """Return the best trial that has not left the rung.

        None if it is not among the best floor(n / eta) of n results.
        """
        best = len(self.places) // eta
        trial = self.best_waiting() if best else None
        return trial if trial is not None and self._of[trial] <= self.places[best - 1] else None
