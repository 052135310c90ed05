"""How far a training goes before it hears more: to the end of a unit, an epoch or, where steps are counted, a step.

At its target everything is said and committed first. Whoever is told to go on keeps all that is in memory; the
others leave, and come back from the checkpoint when it is their turn.
"""

from __future__ import annotations

from kernel_backend.runner.ipc import Instructions
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Ranks

ANSWER_S = 5.0  # what the service gets to decide; slots that nobody needs are worth more than a reload


class Target:
    """The target of this moment, the same on every rank."""

    def __init__(self, until: int | None, ranks: Ranks, instructions: Instructions, progress: Progress) -> None:
        """`until` is the unit's number, counted from 1; None: the training goes to its end unasked."""
        self._until, self._ranks = until, ranks
        self._instructions, self._progress = instructions, progress

    def reached(self, units: int) -> bool:
        """Whether it lies at the end of so many units, or before."""
        return self._until is not None and units >= self._until

    def moves_on(self, units: int, step: int) -> bool:
        """Wait for a target beyond these units, and take it; whether there is one. Called by all ranks."""
        self._progress.tick("waiting", step)
        told = self._instructions.beyond(units, ANSWER_S) if self._ranks.rank == 0 else None
        further: int | None = self._ranks.broadcast_object(told)
        self._until = self._until if further is None else further
        return further is not None
