"""Measure in the first steps how much faster several slots are, and warn the user once if they are hardly faster."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from kernel_backend.runner.ranks.backends import Ranks

_SKIPPED, _MEASURED = 3, 12  # numbers of steps
_GOOD = 0.75  # fraction of an ideal speedup from which nothing is noted


class StepTime(NamedTuple):
    """Seconds that a step took on one rank, in total and by cause."""

    total: float
    calls: float  # this rank's rows of split calls, forward and backward
    exchange: float  # waiting for other ranks
    loading: float


def judge(steps: list[StepTime], whole: float, ranks: int) -> str | None:
    """Return a sentence for the user on a small speedup by `ranks` slots, and its cause; None if the speedup is good.

    `whole` is the duration of an unsplit call, divided by that of a call with one rank's rows.

    Examples
    --------
    >>> judge([StepTime(total=1.0, calls=0.2, exchange=0.1, loading=0.6)], whole=1.5, ranks=2)
    '2 slots bring 1.0x: most of a step is the data loading, which each rank repeats'
    >>> judge([StepTime(total=1.0, calls=0.9, exchange=0.05, loading=0.0)], whole=2.0, ranks=2)
    """
    total, calls, exchange, loading = (statistics.median(each) for each in zip(*steps, strict=True))
    other = max(0.0, total - calls - exchange - loading)
    gain = (loading + other + calls * whole) / total
    if gain >= _GOOD * ranks:
        return None
    repeated = (ranks - 1) / ranks
    _, share, cause = max(
        (loading * repeated, loading / total, "the data loading, which each rank repeats"),
        (other * repeated, other / total, "code outside of the split calls, which each rank repeats"),
        (exchange, exchange / total, "the exchange between the slots"),
        (calls * (1 - whole / ranks), 0.0, "so"),
    )
    if cause == "so":
        return f"{ranks} slots bring {gain:.1f}x: the rows of one slot take {1 / whole:.0%} of the time of all rows"
    most = "most" if share > 0.5 else f"{share:.0%}"
    return f"{ranks} slots bring {gain:.1f}x: {most} of a step is {cause}"


class TimedRanks:
    """Process group that measures how long its collective operations take."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self.size = ranks, ranks.size
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._ranks, name)

        def timed(*args: Any) -> Any:
            begun = time.perf_counter()
            try:
                return operation(*args)
            finally:
                self.seconds += time.perf_counter() - begun

        return timed


class Benefit:
    """Timer of a training's first steps, to compute how much faster several ranks are."""

    def __init__(self, ranks: int, device: torch.device, exchange: Callable[[], float]) -> None:
        """Set up the timer for `ranks` ranks; `exchange` returns the seconds spent on communication so far."""
        self._ranks, self._device, self._exchange = ranks, device, exchange
        self._steps: list[StepTime] = []
        self._taken = 0
        self._calls = self._loading = 0.0
        self._backward: float | None = None
        self._begun = (0.0, 0.0)
        self._compared = (0.0, 0.0)  # seconds of whole calls, and of this rank's rows of them
        self._next = _BaseDataLoaderIter.__next__

    @property
    def measures(self) -> bool:
        """Return True until enough steps were measured for a judgement."""
        return self._taken < _SKIPPED + _MEASURED

    @property
    def compares(self) -> bool:
        """Return True if the calls of this step must also be run unsplit, to compare how long both ways take."""
        return self._taken in (_SKIPPED, _SKIPPED + 1)

    def install(self) -> None:
        """Start measuring the time of data loading."""

        def timed(loader: Any) -> Any:
            begun = time.perf_counter()
            try:
                return self._next(loader)
            finally:
                self._loading += time.perf_counter() - begun

        _BaseDataLoaderIter.__next__ = timed  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        """Stop measuring the time of data loading."""
        _BaseDataLoaderIter.__next__ = self._next  # type: ignore[method-assign]

    def now(self) -> float:
        """Return the time in seconds of a running clock; on a GPU, only after its queued work has ended."""
        if self.measures and self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def called(self, seconds: float) -> None:
        """Add the seconds that this rank's rows of a call took, without communication."""
        self._calls += seconds

    def compare(self, whole: float, own: float, spent: float) -> None:
        """Record the seconds that an unsplit call took (`whole`), and that this rank's rows of it took (`own`).

        The `spent` seconds of this comparison are left out of the step's duration.
        """
        self._compared = (self._compared[0] + whole, self._compared[1] + own)
        self._begun = (self._begun[0] + spent, self._begun[1])

    def backward(self, begins: bool) -> None:
        """Measure the backward pass of a split call: begin if `begins`, else add the time since the previous call."""
        if not self.measures:
            return
        before, self._backward = self._backward, self.now() - self._exchange()
        if not begins and before is not None:
            self._calls += self._backward - before

    def end_step(self) -> str | None:
        """End a step. Once enough steps were measured, return a note for the user if the speedup is small, or None."""
        if not self.measures:
            return None
        now, exchange = self.now(), self._exchange()
        if self._taken >= _SKIPPED:
            total = now - self._begun[0]
            self._steps.append(StepTime(total, self._calls, exchange - self._begun[1], self._loading))
        self._taken += 1
        self._begun, self._calls, self._loading, self._backward = (now, exchange), 0.0, 0.0, None
        if self.measures:
            return None
        self.close()
        whole, own = self._compared
        return judge(self._steps, whole / own if own else float(self._ranks), self._ranks)
