"""Hold the observations of a search: trials as points of the unit cube, and their results by unit."""

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
    """Trials of a search as points of the unit cube, and their results by unit.

    Lower values are better here, whatever the mode of the metric. A value that is not finite counts as the worst.

    Parameters
    ----------
    encoder : Encoder
        Turns hyperparameters into points of the unit cube, and back: `encode`, `decode`, `dimensions`.
    mode : {"min", "max"}
        Whether lower or higher values of the metric are better.
    units : sequence of int
        Units at which results are ranked.

    Examples
    --------
    >>> from daylight.search import Encoder, Observations, Parameter, Range, Space
    >>> space = Space(parameters=(Parameter(name="x", domain=Range(low=0.0, high=2.0)),))
    >>> seen = Observations(Encoder(space), "max", units=[3])
    >>> seen.begin(1, {"x": 1.0})
    >>> seen.report(1, 3, 0.9)
    >>> seen.points([1])
    array([[0.5]])
    >>> unit, ranking = seen.telling(1)
    >>> unit, len(ranking)
    (3, 1)
    """

    def __init__(self, encoder: Encoder, mode: str, units: Sequence[int]) -> None:
        """Create empty observations; results are ranked at each of `units`."""
        self.encoder = encoder
        self._sign = -1.0 if mode == "max" else 1.0
        self.params: dict[int, Mapping[str, Value]] = {}
        self._points: dict[int, Array] = {}
        self.rankings = {unit: Ranking() for unit in sorted(units)}
        self._above: dict[int, Sequence[int]] = {}  # by trial: ranked units that it has not passed yet
        self.training: dict[int, float] = {}
        """The last values of trials that train now; WORST before the first."""

    def lower(self, value: float) -> float:
        """Return a value in the form that is compared.

        Parameters
        ----------
        value : float
            Value as reported.

        Returns
        -------
        float
            The value, negated if higher is better; `WORST` if it is not finite.
        """
        return self._sign * value if math.isfinite(value) else WORST

    def raw(self, lower: float) -> float:
        """Return a value as it was reported, from the form in which lower is better.

        Parameters
        ----------
        lower : float
            Value that `lower` returned.

        Returns
        -------
        float
            The reported value; infinity of the worse sign if the trial diverged.
        """
        return self._sign * lower

    def begin(self, trial: int, params: Mapping[str, Value]) -> None:
        """Record the hyperparameters of a trial.

        A trial of another search (number below 1) outside of this space is ignored.

        Parameters
        ----------
        trial : int
            Number of the trial.
        params : mapping of str to Any
            Hyperparameters by name.
        """
        if trial < 1:
            try:
                self.encoder.encode(params)
            except ValueError:
                return
        self.params[trial] = params
        self._above.setdefault(trial, tuple(self.rankings))
        self._points.pop(trial, None)

    def train(self, trial: int) -> None:
        """Record that a trial is training.

        Parameters
        ----------
        trial : int
            Number of the trial.
        """
        self.training[trial] = WORST

    def report(self, trial: int, unit: int, value: float) -> None:
        """Record a value of a trial, as its result at each ranked unit that it has passed since its last report.

        Parameters
        ----------
        trial : int
            Number of the trial.
        unit : int
            Unit at whose end it was reported.
        value : float
            Value as reported.
        """
        lower = self.lower(value)
        if trial in self.training:
            self.training[trial] = lower
        above = self._above.get(trial, ())
        while above and above[0] <= unit:
            self.rankings[above[0]].record(trial, lower)
            above = self._above[trial] = above[1:]

    def rest(self, trial: int) -> None:
        """Record that a trial is no longer training.

        Parameters
        ----------
        trial : int
            Number of the trial.
        """
        self.training.pop(trial, None)

    def fail(self, trial: int, unit: int) -> None:
        """Record a failed trial as the worst result at its target unit, if results are ranked there.

        Parameters
        ----------
        trial : int
            Number of the trial.
        unit : int
            Its target.
        """
        if unit in self.rankings:
            self.rankings[unit].record(trial, WORST)

    def forget(self, trial: int) -> None:
        """Drop the results of a trial.

        Parameters
        ----------
        trial : int
            Number of the trial.
        """
        self.rest(trial)
        for ranking in self.rankings.values():
            ranking.forget(trial)

    def telling(self, least: int) -> tuple[int, Ranking] | None:
        """Return the highest ranked unit that has at least `least` results.

        Parameters
        ----------
        least : int
            Required number of results.

        Returns
        -------
        tuple of int and Ranking, or None
            The unit and its results in order; None if no unit has enough results.
        """
        enough = (each for each in reversed(self.rankings.items()) if len(each[1]) >= least)
        return next(enough, None)

    def points(self, trials: Sequence[int]) -> Array:
        """Return trials as points of the unit cube.

        Parameters
        ----------
        trials : sequence of int
            Numbers of n trials.

        Returns
        -------
        ndarray of float, shape (n, dimensions)
            Coordinates from 0 to 1; NaN for parameters that are inactive in a trial.
        """
        for trial in trials:
            if trial not in self._points:  # computed on first use, as replaying a log does not need it
                self._points[trial] = np.array(self.encoder.encode(self.params[trial]))
        return np.array([self._points[trial] for trial in trials]).reshape(len(trials), len(self.encoder.dimensions))
