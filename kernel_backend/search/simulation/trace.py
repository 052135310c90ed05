"""What came of a simulated search."""

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
    """A trial as the simulation saw it; times in seconds of the simulated clock."""

    number: int
    params: dict[str, Value]
    began: float
    values: dict[int, float] = field(default_factory=dict)  # by unit
    trained: float = 0.0  # seconds in which it held a worker
    parent: int | None = None
    reached: int = 0  # units
    state: State = "running"


@dataclass
class Trace:
    """All of it: `times[n]` and `values[n]` of the finite reports, in order of time."""

    mode: Mode
    workers: int
    trials: dict[int, SimulatedTrial]
    times: Array
    values: Array
    busy: float  # seconds that workers trained or loaded, over all of them
    ended: float  # when the last trial gave its worker back, or the time was up

    @property
    def utilisation(self) -> float:
        """The share of all workers' time in which they had a trial."""
        return self.busy / (self.workers * self.ended) if self.ended else 0.0

    def incumbent(self) -> Array:
        """The best value reported so far, beside `times`."""
        best = np.minimum if self.mode == "min" else np.maximum
        found: Array = best.accumulate(self.values)
        return found

    def time_to(self, value: float) -> float:
        """When a report was first as good as `value`; infinity if none was."""
        good = self.values <= value if self.mode == "min" else self.values >= value
        return float(self.times[good.argmax()]) if good.any() else float("inf")

    def best_at(self, time: float) -> float:
        """The best value reported up to a time; NaN before the first."""
        seen = int(np.searchsorted(self.times, time, side="right"))
        return float(self.incumbent()[seen - 1]) if seen else float("nan")
