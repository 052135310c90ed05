"""Define problems: sources of learning curves for simulated searches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search.encoding import Encoder

Array = NDArray[np.float64]


class Problem(Protocol):
    """Interface of a problem: the learning curves of trials, and the seconds that a unit of training takes.

    Examples
    --------
    >>> from daylight.search import Problem
    >>> class Flat:
    ...     units = 9
    ...     def begin(self, trial, params, parent):
    ...         return dict(params)
    ...     def value(self, trial, unit):
    ...         return 1.0
    ...     def seconds(self, trial):
    ...         return 60.0
    >>> problem: Problem = Flat()
    """

    units: int
    """R: what a whole training has."""

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        """Begin a trial.

        Parameters
        ----------
        trial : int
            Number of the trial.
        params : mapping of str to Any
            Hyperparameters that the search proposes.
        parent : int or None
            Trial whose checkpoint it begins from.

        Returns
        -------
        dict of str to Any
            Hyperparameters that the trial really has.
        """

    def value(self, trial: int, unit: int) -> float:
        """Return the metric at the end of a unit.

        Parameters
        ----------
        trial : int
            Number of the trial.
        unit : int
            Unit, from 1 to `units`.

        Returns
        -------
        float
            Value of the metric; NaN if the training diverged.
        """

    def seconds(self, trial: int) -> float:
        """Return the duration of one unit.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        float
            Seconds.
        """


class TableProblem:
    """Problem whose learning curves come from a table of recorded trainings.

    A trial gets the nearest row that no other trial has. A unit takes one second.

    Parameters
    ----------
    names : sequence of str
        Names of d hyperparameters.
    configs : ndarray of float, shape (n, d)
        Hyperparameters of n trainings.
    curves : ndarray of float, shape (n, T)
        Metric of each training after unit 1 to T; NaN where it diverged.
    space : Space, optional
        Ranges and scales that say which rows are near. By default they span the columns, on a logarithmic scale where a
        column is positive and spans a factor of 100.

    Raises
    ------
    ValueError
        The shapes do not agree.

    Examples
    --------
    >>> import numpy as np
    >>> from daylight.search import TableProblem
    >>> problem = TableProblem(["lr"], np.array([[0.001], [0.1]]), np.array([[0.9, 0.7], [0.8, 0.4]]))
    >>> problem.begin(1, {"lr": 0.05}, parent=None)
    {'lr': 0.1}
    >>> problem.value(1, unit=2)
    0.4
    """

    def __init__(
        self,
        names: Sequence[str],
        configs: Array,
        curves: Array,
        space: Space | None = None,
    ) -> None:
        if configs.shape != (len(curves), len(names)):
            raise ValueError(f"{len(names)} names and {len(curves)} curves, but configs of shape {configs.shape}")
        self.names, self.configs, self.curves = tuple(names), configs, curves
        self.units = curves.shape[1]
        self.space = space or Space(parameters=tuple(_column(*each) for each in zip(names, configs.T, strict=True)))
        self._encoder = Encoder(self.space)
        self._points = np.array([self._encoder.encode(self.row(index)) for index in range(len(configs))])
        self._free = np.ones(len(configs), dtype=bool)
        self.taken: dict[int, int] = {}
        """The row of each trial."""

    def row(self, index: int) -> dict[str, Value]:
        """Return the hyperparameters of a row.

        Parameters
        ----------
        index : int
            Number of the row, from 0.

        Returns
        -------
        dict of str to Any
            Hyperparameters by name.
        """
        return {name: float(value) for name, value in zip(self.names, self.configs[index], strict=True)}

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        """Begin a trial on the nearest free row.

        Parameters
        ----------
        trial : int
            Number of the trial.
        params : mapping of str to Any
            Hyperparameters that the search proposes.
        parent : int or None
            Ignored: a row is a whole training.

        Returns
        -------
        dict of str to Any
            Hyperparameters of the row.

        Raises
        ------
        IndexError
            All rows are taken.
        """
        if not self._free.any():
            raise IndexError(f"all {len(self._free)} rows are taken")
        apart = ((self._points - np.array(self._encoder.encode(params))) ** 2).sum(axis=1)
        index = int(np.where(self._free, apart, np.inf).argmin())
        self._free[index] = False
        self.taken[trial] = index
        return self.row(index)

    def value(self, trial: int, unit: int) -> float:
        """Return a trial's value at the end of a unit, from its row.

        Parameters
        ----------
        trial : int
            Number of the trial.
        unit : int
            Unit, from 1 to `units`.

        Returns
        -------
        float
            Value of the metric; NaN if the training diverged.
        """
        return float(self.curves[self.taken[trial], unit - 1])

    def seconds(self, trial: int) -> float:
        """Return 1.0, the duration of one unit in seconds.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Returns
        -------
        float
            Always 1.0.
        """
        return 1.0


def _column(name: str, values: Array) -> Parameter:
    low, high = float(values.min()), float(values.max())
    return Parameter(name=name, domain=Range(low=low, high=high, scale="log" if 0 < low * 100 <= high else "linear"))


class Trained:
    """Problem whose loss falls as a power of the unit, towards a lower bound that differs between trials.

    Bound and speed of a trial are random, seeded by (seed, trial), and independent of its hyperparameters. This
    suffices to forecast the cost of a search, which depends only on ranks.
    """

    def __init__(self, units: int, seconds: float = 1.0, seed: int = 0) -> None:
        """Create the problem; one unit of training takes `seconds`."""
        self.units, self._seconds, self._seed = units, seconds, seed
        self._curves: dict[int, tuple[float, float]] = {}

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        """Return the hyperparameters that the search proposes, unchanged."""
        random = np.random.default_rng((self._seed, trial))
        self._curves[trial] = float(random.random()), float(random.uniform(0.3, 1.0))
        return dict(params)

    def value(self, trial: int, unit: int) -> float:
        """Return the loss of a trial at the end of a unit, which is between 0 and 2."""
        floor, speed = self._curves[trial]
        return floor + math.pow(unit, -speed)

    def seconds(self, trial: int) -> float:
        """Return the duration of one unit in seconds, the same for all trials."""
        return self._seconds
