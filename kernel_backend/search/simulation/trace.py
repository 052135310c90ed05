"""Define the result of a simulated search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kernel_backend.model.record import Value

Array = NDArray[np.float64]
Mode = Literal["min", "max"]
State = Literal["running", "paused", "pruned", "completed", "failed"]


@dataclass
class SimulatedTrial:
    """Trial of a simulated search; times are seconds of the simulated clock."""

    number: int
    params: dict[str, Value]
    began: float
    values: dict[int, float] = field(default_factory=dict)  # by unit
    trained: float = 0.0  # seconds in which it held a gang
    parent: int | None = None
    reached: int = 0  # units
    state: State = "running"


@dataclass
class Trace:
    """Result of a simulated search: trials, reports and use of the workers.

    Parameters
    ----------
    mode : {"min", "max"}
        Whether lower or higher values are better.
    workers : int
        Number of gangs, that is, of trials that can train at the same time.
    trials : dict of int to SimulatedTrial
        Trials by number: hyperparameters, values by unit, state, seconds of training.
    times : ndarray of float, shape (n,)
        Seconds of the finite reports, in order.
    values : ndarray of float, shape (n,)
        Values of these reports.
    busy : float
        Seconds that workers trained or loaded, summed over all workers.
    ended : float
        Time in seconds at which the run ended.

    Examples
    --------
    >>> import numpy as np
    >>> from daylight.search import Trace
    >>> trace = Trace("min", 2, {}, np.array([1.0, 2.0]), np.array([0.9, 0.5]), busy=3.0, ended=2.0)
    >>> trace.utilisation, trace.time_to(0.6), trace.best_at(1.5)
    (0.75, 2.0, 0.9)
    """

    mode: Mode
    workers: int
    trials: dict[int, SimulatedTrial]
    times: Array
    values: Array
    busy: float  # seconds in which gangs trained or loaded, summed over gangs
    ended: float  # when the last trial released its gang, or the time was up

    @property
    def utilisation(self) -> float:
        """Return the fraction of all gangs' time in which they had a trial, from 0 to 1."""
        return self.busy / (self.workers * self.ended) if self.ended else 0.0

    def incumbent(self) -> Array:
        """Return the best value reported so far, at each of `times`.

        Returns
        -------
        ndarray of float, shape (n,)
            The best value up to each report.
        """
        best = np.minimum if self.mode == "min" else np.maximum
        found: Array = best.accumulate(self.values)
        return found

    def time_to(self, value: float) -> float:
        """Return the time of the first report that is as good as a value.

        Parameters
        ----------
        value : float
            Value of the metric.

        Returns
        -------
        float
            Seconds; infinity if there was none.
        """
        good = self.values <= value if self.mode == "min" else self.values >= value
        return float(self.times[good.argmax()]) if good.any() else float("inf")

    def best_at(self, time: float) -> float:
        """Return the best value reported up to a time.

        Parameters
        ----------
        time : float
            Seconds on the simulated clock.

        Returns
        -------
        float
            Value of the metric; NaN before the first report.
        """
        seen = int(np.searchsorted(self.times, time, side="right"))
        return float(self.incumbent()[seen - 1]) if seen else float("nan")
