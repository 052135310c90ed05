"""What a search has seen: where its trials are in the unit cube, and how good they were at which unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kernel_backend.model.record import Value
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.rungs import WORST, Ranking

Array = NDArray[np.float64]


class Observations:
    """Points and values: lower is better here whatever the metric's mode, and what is not finite is the worst."""

    def __init__(self, encoder: Encoder, mode: str, units: Sequence[int]) -> None:
        """Results are ranked at each of `units`."""
        self.encoder = encoder
        self._sign = -1.0 if mode == "max" else 1.0
        self.params: dict[int, Mapping[str, Value]] = {}
        self._points: dict[int, Array] = {}
        self.rankings = {unit: Ranking() for unit in sorted(units)}
        self._above: dict[int, Sequence[int]] = {}  # by trial, the units of the ranking that it has still to pass
        self.training: dict[int, float] = {}
        """The last values of trials that train now; WORST before the first."""

    def lower(self, value: float) -> float:
        """A value as it is compared."""
        return self._sign * value if math.isfinite(value) else WORST

    def raw(self, lower: float) -> float:
        """The value as it was reported; infinite, the bad way, where it diverged."""
        return self._sign * lower

    def begin(self, trial: int, params: Mapping[str, Value]) -> None:
        """A trial has these hyperparameters; one of another search that lies outside of this space is not seen."""
        if trial < 1:
            try:
                self.encoder.encode(params)
            except ValueError:
                return
        self.params[trial] = params
        self._above.setdefault(trial, tuple(self.rankings))
        self._points.pop(trial, None)

    def train(self, trial: int) -> None:
        """A trial trains."""
        self.training[trial] = WORST

    def report(self, trial: int, unit: int, value: float) -> None:
        """A value at the end of a unit; it counts for every unit of the ranking that was passed without one."""
        lower = self.lower(value)
        if trial in self.training:
            self.training[trial] = lower
        above = self._above.get(trial, ())
        while above and above[0] <= unit:
            self.rankings[above[0]].record(trial, lower)
            above = self._above[trial] = above[1:]

    def rest(self, trial: int) -> None:
        """A trial does not train any more."""
        self.training.pop(trial, None)

    def fail(self, trial: int, unit: int) -> None:
        """A trial failed on its way to a unit; it counts where that is ranked."""
        if unit in self.rankings:
            self.rankings[unit].record(trial, WORST)

    def forget(self, trial: int) -> None:
        """A trial never was."""
        self.rest(trial)
        for ranking in self.rankings.values():
            ranking.forget(trial)

    def telling(self, least: int) -> tuple[int, Ranking] | None:
        """The highest unit with so many results; None where there is none yet."""
        enough = (each for each in reversed(self.rankings.items()) if len(each[1]) >= least)
        return next(enough, None)

    def points(self, trials: Sequence[int]) -> Array:
        """Where trials are: [n, dimensions], NaN in those that do not count."""
        for trial in trials:
            if trial not in self._points:  # made when it is first needed: a log is replayed without
                self._points[trial] = np.array(self.encoder.encode(self.params[trial]))
        return np.array([self._points[trial] for trial in trials]).reshape(len(trials), len(self.encoder.dimensions))
