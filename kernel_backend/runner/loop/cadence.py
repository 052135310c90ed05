"""Decide on rank 0 when to report and save; the decision reaches other ranks with the next step's gradients."""

from __future__ import annotations

import time
from collections.abc import Callable

from kernel_backend.model.experiment import Cadence
from kernel_backend.runner.checkpoint.saving import Cost

REPORTS_PER_EPOCH = 50
QUIET_S = 1.0  # a slow training reports at least this often, if its steps allow

# Adaptive checkpoints: training may stall for 1 % of the time, and keep the disk busy for half of it.
STALLED, BUSY = 0.01, 0.5
SOONEST_S, LATEST_S = 5.0, 60.0


def interval(cost: Cost) -> float:
    """Return the default interval between checkpoints, 5 to 60 seconds; it grows with their cost."""
    return min(LATEST_S, max(SOONEST_S, cost.stall / STALLED, cost.write / BUSY))


class CadenceTimer:
    """Timer that is called once before each step; reports are due at fixed steps, and after a long time without any."""

    def __init__(
        self, per_epoch: int | None, every: Cadence | None, cost: Callable[[], Cost], busy: Callable[[], bool]
    ) -> None:
        """Set up the timer.

        `every` is `--checkpoint-every`, None for the default interval. `cost` returns the cost of the newest
        checkpoint, and `busy` returns True while one is being written.
        """
        self._per_epoch = per_epoch or 0
        self._grid = max(1, round(self._per_epoch / REPORTS_PER_EPOCH))
        self._every, self._cost, self._busy = every, cost, busy
        self._reported = self._saved = time.monotonic()

    def report(self, step: int) -> bool:
        """Return True if step `step` (from 1) must be reported."""
        now = time.monotonic()
        due = self._on_grid(step) or now - self._reported >= QUIET_S
        if due:
            self._reported = now
        return due

    def checkpoint(self, step: int) -> bool:
        """Return True if a checkpoint must follow step `step` (from 1)."""
        since = time.monotonic() - self._saved
        if self._every is None:
            return since >= interval(self._cost()) and not self._busy()
        if self._every.steps is not None:
            return step % self._every.steps == 0
        if self._every.epochs is not None:
            return False  # `after_epoch` decides
        return since >= (self._every.seconds or 0.0)

    def after_epoch(self, epochs: int) -> bool:
        """Return True if a checkpoint must follow epoch `epochs` (from 1); the result is the same on all ranks."""
        return self._every is not None and self._every.epochs is not None and epochs % self._every.epochs == 0

    def saved(self) -> None:
        """Restart the interval, as a checkpoint was started."""
        self._saved = time.monotonic()

    def _on_grid(self, step: int) -> bool:
        if not self._per_epoch:  # the number of steps is unknown
            return step <= REPORTS_PER_EPOCH or step % REPORTS_PER_EPOCH == 0
        in_epoch = step % self._per_epoch
        return in_epoch % self._grid == 0
