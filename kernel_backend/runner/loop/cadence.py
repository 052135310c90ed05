"""Decide on rank 0 when to report metrics and to save a checkpoint.

The other ranks learn of each decision with the gradients of the next step.
"""

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
    """Return the default number of seconds between two checkpoints: from 5 to 60, by the cost of the newest one.

    It is long enough that training stalls for at most 1 % of the time and writing takes at most half of it, unless that
    requires more than 60 seconds.
    """
    return min(LATEST_S, max(SOONEST_S, cost.stall / STALLED, cost.write / BUSY))


class CadenceTimer:
    """Timer that says for each step whether to report its metrics, and whether to save a checkpoint after it.

    Reports are due at fixed steps, and at any step if there has been no report for some time.
    """

    def __init__(
        self, per_epoch: int | None, every: Cadence | None, cost: Callable[[], Cost], busy: Callable[[], bool]
    ) -> None:
        """Set up the timer for epochs of `per_epoch` steps, None if their length is unknown.

        `every` is the option `--checkpoint-every`, None for the default interval. `cost` returns the newest
        checkpoint's cost, and `busy` returns True while a checkpoint is being written.
        """
        self._per_epoch = per_epoch or 0
        self._grid = max(1, round(self._per_epoch / REPORTS_PER_EPOCH))
        self._every, self._cost, self._busy = every, cost, busy
        self._reported = self._saved = time.monotonic()

    def report(self, step: int) -> bool:
        """Return True if the metrics of step `step` (from 1) must be reported.

        If so, restart the timer that makes a report due after some time without one.
        """
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
        """Return True if a checkpoint must be saved after epoch `epochs` (from 1); all ranks get the same result."""
        return self._every is not None and self._every.epochs is not None and epochs % self._every.epochs == 0

    def saved(self) -> None:
        """Start the interval to the next checkpoint; call it when saving a checkpoint has begun."""
        self._saved = time.monotonic()

    def _on_grid(self, step: int) -> bool:
        if not self._per_epoch:  # the number of steps is unknown
            return step <= REPORTS_PER_EPOCH or step % REPORTS_PER_EPOCH == 0
        in_epoch = step % self._per_epoch
        return in_epoch % self._grid == 0
