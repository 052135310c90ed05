"""The logical ranks of a training: those that its result counts, however many processes compute them.

Dropout, augmentation and BatchNorm see one share of the batch. Which shares there are is fixed by the number of
logical ranks; a process that computes several takes them one after the other, each with buffers of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernel_backend.runner.ranks import Ranks
from kernel_backend.runner.validation import share

Buffers = dict[str, Tensor]


class LogicalRanks:
    """The logical ranks `mine` of `count`, and what each has in the model's buffers (BatchNorm's statistics)."""

    def __init__(self, model: nn.Module, mine: range, count: int) -> None:
        self.mine, self.count = mine, count
        self._buffers = dict(model.named_buffers())
        self._now = mine.start
        self._kept = {rank: self._copy() for rank in mine} if len(mine) > 1 else {}

    def take(self, rank: int) -> None:
        """Let the model have the buffers of logical rank `rank`."""
        if rank == self._now:
            return
        _overwrite(self._kept[self._now], self._buffers)
        _overwrite(self._buffers, self._kept[rank])
        self._now = rank

    def share(self, ranks: Ranks) -> None:
        """Give every logical rank the buffers of logical rank 0: at steps that all know, never by a clock."""
        self.take(self.mine.start)
        share(list(self._buffers.values()), ranks)
        for kept in self._kept.values():
            _overwrite(kept, self._buffers)

    def buffers(self) -> dict[int, Buffers]:
        """Copies of the buffers of every logical rank here, on the host."""
        return {
            rank: {name: tensor.detach().cpu().clone() for name, tensor in self._of(rank).items()} for rank in self.mine
        }

    def restore(self, rank: int, saved: Buffers) -> None:
        """Let logical rank `rank` have these buffers."""
        _overwrite(self._of(rank), saved)

    def __bool__(self) -> bool:
        """Whether the model has any buffers at all."""
        return bool(self._buffers)

    def _of(self, rank: int) -> Buffers:
        return self._buffers if rank == self._now else self._kept[rank]

    def _copy(self) -> Buffers:
        return {name: tensor.detach().clone() for name, tensor in self._buffers.items()}


def _overwrite(buffers: Buffers, by: Buffers) -> None:
    with torch.no_grad():
        for name, tensor in buffers.items():
            tensor.copy_(by[name])
