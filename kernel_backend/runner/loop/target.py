"""Hold the target of a training: the epoch or step after which a search compares it with other trials.

At its target, a training first reports and commits everything. If it gets a further target within some seconds, it
continues with its state in memory. Otherwise it exits, and resumes from the checkpoint when it is scheduled again.
"""

from __future__ import annotations

from kernel_backend.runner.ipc import Instructions
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Ranks

ANSWER_S = 5.0  # time for the service to decide; holding idle slots costs less than a reload


class Target:
    """Epoch or step at which a search compares this training with other trials; equal on all ranks."""

    def __init__(self, until: int | None, ranks: Ranks, instructions: Instructions, progress: Progress) -> None:
        """Set the target to `until`, an epoch or step counted from 1; None to train to the end."""
        self._until, self._ranks = until, ranks
        self._instructions, self._progress = instructions, progress

    def reached(self, units: int) -> bool:
        """Return True if a training with `units` completed epochs or steps has reached the target."""
        return self._until is not None and units >= self._until

    def moves_on(self, units: int, step: int) -> bool:
        """Wait some seconds for the search to set a target beyond `units`; return True if it has set one.

        All ranks call it. `units` and targets are numbers of epochs or steps. `step` is the current step, for the
        heartbeat.
        """
        self._progress.tick("waiting", step)
        told = self._instructions.beyond(units, ANSWER_S) if self._ranks.rank == 0 else None
        further: int | None = self._ranks.broadcast_object(told)
        self._until = self._until if further is None else further
        return further is not None
