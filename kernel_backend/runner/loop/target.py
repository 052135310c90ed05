"""Hold the target of a training: the unit to stop at (an epoch or, if steps are counted, a step).

At its target everything is reported and committed first. A training that gets a further target keeps its state in
memory. Others leave, and resume from the checkpoint when they are scheduled again.
"""

from __future__ import annotations

from kernel_backend.runner.ipc import Instructions
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Ranks

ANSWER_S = 5.0  # time for the service to decide; holding idle slots costs less than a reload


class Target:
    """Current target, the same on every rank."""

    def __init__(self, until: int | None, ranks: Ranks, instructions: Instructions, progress: Progress) -> None:
        """Set the target: `until` is a unit counted from 1, or None to train to the end."""
        self._until, self._ranks = until, ranks
        self._instructions, self._progress = instructions, progress

    def reached(self, units: int) -> bool:
        """Return True if a training of this many units has reached the target."""
        return self._until is not None and units >= self._until

    def moves_on(self, units: int, step: int) -> bool:
        """Wait some time for a target beyond `units` and adopt it; return True if one came. Called by all ranks."""
        self._progress.tick("waiting", step)
        told = self._instructions.beyond(units, ANSWER_S) if self._ranks.rank == 0 else None
        further: int | None = self._ranks.broadcast_object(told)
        self._until = self._until if further is None else further
        return further is not None
