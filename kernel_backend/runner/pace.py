"""When rank 0 wants a report or a checkpoint; the others learn it by the control word."""

from __future__ import annotations

import time

from kernel_backend.model.experiment import Cadence

REPORTS_PER_EPOCH = 50
QUIET_S = 1.0  # a slow training reports at least this often, if its steps allow


class Pace:
    """Asked once before each step. The grid of reports depends on steps alone; the clock may only add to it."""

    def __init__(self, per_epoch: int, checkpoint_every: Cadence) -> None:
        self._per_epoch = per_epoch
        self._grid = max(1, round(per_epoch / REPORTS_PER_EPOCH))
        self._every = checkpoint_every
        self._reported = self._saved = time.monotonic()

    def report(self, step: int) -> bool:
        """Whether step `step` (counted from 1) is to be reported."""
        now = time.monotonic()
        at_end = step % self._per_epoch == 0
        due = at_end or step % self._per_epoch % self._grid == 0 or now - self._reported >= QUIET_S
        if due:
            self._reported = now
        return due

    def checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is to follow step `step` (counted from 1)."""
        if self._every.steps is not None:
            return step % self._every.steps == 0
        if self._every.epochs is not None:
            return step % (self._every.epochs * self._per_epoch) == 0
        return time.monotonic() - self._saved >= (self._every.seconds or 0.0)

    def saved(self) -> None:
        """A checkpoint was just taken, or tried: the interval begins anew."""
        self._saved = time.monotonic()
