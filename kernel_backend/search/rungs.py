"""Rungs of integers, and the ranking of a rung's results: who is among the best, and who of them still waits."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from typing import NamedTuple

MOST_RUNGS = 5
WORST = math.inf


class RankKey(NamedTuple):
    """What results are ordered by: lower is better, and of equal values the older trial is the better one."""

    value: float
    trial: int


def rung_units(units: int, eta: int, first: int | None = None) -> list[int]:
    """The units at whose ends trials are compared: first * eta^k below `units`, then `units` itself.

    Without a `first` there are at most five. In integers throughout: by floating-point logarithms a rung is lost where
    `units` is a power of eta (243 and 3, in Ray).
    """
    least = first or -(-units // eta ** (MOST_RUNGS - 1))
    found = []
    while least < units:
        found.append(least)
        least *= eta
    return [*found, units]


class Ranking:
    """Results, best first; of each trial the first one counts."""

    def __init__(self) -> None:
        self.places: list[RankKey] = []
        self._of: dict[int, RankKey] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, trial: int) -> bool:
        return trial in self._of

    def record(self, trial: int, value: float) -> bool:
        """Take a result in (lower is better, `WORST` diverged or failed); False where there is one of this trial."""
        if trial in self._of:
            return False
        place = self._of[trial] = RankKey(value, trial)
        insort(self.places, place)
        return True

    def forget(self, trial: int) -> None:
        """Take a result out, if there is one, as though it had never been."""
        place = self._of.pop(trial, None)
        if place is not None:
            del self.places[bisect_left(self.places, place)]

    def rank(self, trial: int) -> int:
        """How many are better; raises KeyError."""
        return bisect_left(self.places, self._of[trial])


class Rung(Ranking):
    """All results ever recorded at the end of one unit, and which of the trials have gone on from there."""

    def __init__(self, unit: int) -> None:
        super().__init__()
        self.unit = unit
        self._waiting: list[RankKey] = []  # a heap; who has left it otherwise is dropped when it comes up
        self._left: set[int] = set()

    def record(self, trial: int, value: float) -> bool:
        """As of any ranking; what has diverged never goes on."""
        new = super().record(trial, value)
        if new and value < WORST:
            heapq.heappush(self._waiting, self._of[trial])
        return new

    @property
    def best(self) -> float:
        """The best result; WORST where there is none that is finite."""
        return self.places[0].value if self.places else WORST

    def stays(self, trial: int, eta: int) -> bool:
        """Whether a trial has a finite result here, of the best max(1, floor(n / eta))."""
        rank = self.rank(trial)
        return self.places[rank].value < WORST and rank < max(1, len(self) // eta)

    def leave(self, trial: int) -> None:
        """The trial has gone on from here, or never will."""
        self._left.add(trial)

    def best_waiting(self) -> int | None:
        """The best trial that has a finite result here and has not left."""
        while self._waiting:
            trial = self._waiting[0].trial
            if trial in self._of and trial not in self._left:
                return trial
            heapq.heappop(self._waiting)
        return None

    def promotable(self, eta: int) -> int | None:
        """The best trial that waits, if it is one of the best floor(n / eta)."""
        best = len(self.places) // eta
        trial = self.best_waiting() if best else None
        return trial if trial is not None and self._of[trial] <= self.places[best - 1] else None
