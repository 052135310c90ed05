"""What a simulated search trains: trials whose curves are known beforehand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernel_backend.model.record import Value
from kernel_backend.model.search.space import Parameter, Range, Space
from kernel_backend.search.encoding import Encoder

Array = NDArray[np.float64]


class Problem(Protocol):
    """What trials are like: their curves, and the seconds that a unit of their training takes."""

    units: int
    """R: what a whole training has."""

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        """Begin a trial; the hyperparameters that it really has."""

    def value(self, trial: int, unit: int) -> float:
        """The metric at the end of a unit, from 1 to `units`."""

    def seconds(self, trial: int) -> float:
        """What one unit takes."""


class TableProblem:
    """Recorded curves: a proposal takes the nearest row that none has taken before.

    `names` are those of `configs[n, d]`, all numbers; `curves[n, T]` has the metric after unit 1 to T, NaN where the
    training diverged. A unit takes one second. `space` says within what ranges, and on what scales, rows are near:
    without it the columns are logarithmic where they are positive and span a factor of 100.
    Raises ValueError where shapes do not agree, and IndexError at a proposal when all rows are taken.
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
        """The hyperparameters of a row."""
        return {name: float(value) for name, value in zip(self.names, self.configs[index], strict=True)}

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        """Take the nearest free row."""
        if not self._free.any():
            raise IndexError(f"all {len(self._free)} rows are taken")
        apart = ((self._points - np.array(self._encoder.encode(params))) ** 2).sum(axis=1)
        index = int(np.where(self._free, apart, np.inf).argmin())
        self._free[index] = False
        self.taken[trial] = index
        return self.row(index)

    def value(self, trial: int, unit: int) -> float:
        """What the row's curve has there."""
        return float(self.curves[self.taken[trial], unit - 1])

    def seconds(self, trial: int) -> float:
        """One second a unit."""
        return 1.0


def _column(name: str, values: Array) -> Parameter:
    low, high = float(values.min()), float(values.max())
    return Parameter(name=name, domain=Range(low=low, high=high, scale="log" if 0 < low * 100 <= high else "linear"))


class Trained:
    """Trials like those of many trainings: loss falls as a power of the unit, towards a floor that is its own.

    How good a trial can become and how fast it does is drawn from its hyperparameters' place by nobody's model: it is
    noise of (seed, trial). It serves to foretell what a search costs, which depends on ranks alone.
    """

    def __init__(self, units: int, seconds: float = 1.0, seed: int = 0) -> None:
        """`seconds` a unit."""
        self.units, self._seconds, self._seed = units, seconds, seed
        self._curves: dict[int, tuple[float, float]] = {}

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        """As proposed."""
        random = np.random.default_rng((self._seed, trial))
        self._curves[trial] = float(random.random()), float(random.uniform(0.3, 1.0))
        return dict(params)

    def value(self, trial: int, unit: int) -> float:
        """Between 0 and 2."""
        floor, speed = self._curves[trial]
        return floor + math.pow(unit, -speed)

    def seconds(self, trial: int) -> float:
        """The same for all."""
        return self._seconds
