"""Save checkpoints of a sharded training: every rank writes its part while the training waits."""

from __future__ import annotations

import time

from kernel_backend.checkpoints.base import Part, checkpoint_id
from kernel_backend.checkpoints.streams import size_of
from kernel_backend.checkpoints.writer import pieces
from kernel_backend.errors import CheckpointFailed, Fenced
from kernel_backend.runner.checkpoint.checkpointer import RETRY, Checkpointer, Position, described
from kernel_backend.runner.checkpoint.saving import Cost


class ShardedCheckpointer(Checkpointer):
    """Checkpointer of a sharded training: all ranks write at the same time, then rank 0 commits the checkpoint.

    Training waits, since a checkpoint is complete only when the part of each rank is on the disk.
    """

    def save(self, position: Position) -> None:
        """Write and commit a checkpoint of the training as it is at `position`, while the training waits.

        If it cannot be written, warn the user and continue without this checkpoint.
        """
        problem = self._attempt(position)
        if problem is not None and self._ranks.rank == 0:
            self._miss(position, problem)

    def settle(self) -> None:
        """Do nothing: `save` returns only when the checkpoint is written."""

    def finish(self, position: Position) -> None:
        """Commit a final checkpoint; raise CheckpointFailed if it cannot be written after several tries."""
        waits = RETRY.waits()
        while (problem := self._attempt(position)) is not None:
            pause = next(waits, None)
            if pause is None:
                raise CheckpointFailed(f"{self._lost(position, problem)}. Make room, or put that right")
            time.sleep(pause)

    def _attempt(self, position: Position) -> str | None:
        """Write and commit a checkpoint once; return None or, if it failed, an error message, equal on all ranks.

        Raises Fenced if a newer attempt of the trial has begun.
        """
        began = time.monotonic()
        per_rank = self._contents.gather()
        state, parts = self._contents.split(per_rank)
        state["training"] = self._facts(position)
        name = checkpoint_id(position.step, self._job.attempt)
        written: list[Part] = []
        problem: Exception | None = None
        try:
            self._must_be_newest()
            data = {part: pieces(tensors) for part, tensors in parts.items()}
            self._require_space(sum(map(size_of, data.values())))
            written = [self._home.write(name, part, each) for part, each in data.items()]
        except Exception as error:  # storage backends raise their own classes
            problem = error
        all_parts, problems = zip(
            *self._ranks.all_gather_object((written, problem and described(problem))), strict=True
        )
        reason = next(filter(None, problems), None)
        if self._ranks.rank == 0 and reason is None:
            try:
                seconds = time.monotonic() - began
                self._commit(position, state, [part for each in all_parts for part in each], Cost(seconds, seconds))
            except Exception as error:
                problem, reason = error, described(error)
        if self._ranks.rank == 0 and reason is not None:
            self._discard(position)
        # No rank continues, and so none exits, before the commit.
        agreed: str | None = self._ranks.broadcast_object(reason)
        if isinstance(problem, Fenced):
            raise problem
        return agreed
