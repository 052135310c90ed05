"""Provide a process group to one rank that computes its part of a step without any other rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kernel_backend.runner.ranks.backends import Handle


class LoneRank:
    """Stand-in for a process group, without other ranks: it computes as if all ranks passed the same values.

    The training of one rank thus uses as much memory as in a training with all ranks: the same share of a batch, and
    the same buffers.
    """

    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank

    def allreduce_async(self, tensor: Tensor, name: str) -> Handle:
        """Multiply the tensor by the number of ranks, and return a handle whose `wait` returns at once."""
        self.allreduce_sum(tensor, name)
        return _Done()

    def allreduce_sum(self, tensor: Tensor, name: str) -> Tensor:
        """Multiply the tensor by the number of ranks, and return it."""
        return tensor.mul_(self.size)

    def all_to_all(self, tensor: Tensor, sends: Sequence[int], receives: Sequence[int], name: str) -> Tensor:
        """Return zeros in place of what other ranks would send: `sum(receives)` elements."""
        return tensor.new_zeros(sum(receives))

    def all_gather(self, tensor: Tensor, name: str) -> Tensor:
        """Return a copy of the flat tensor for each rank."""
        return tensor.repeat(self.size)

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Return the tensor unchanged."""
        return tensor

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """Return the value unchanged."""
        return value

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the value once for each rank."""
        return [value] * self.size

    def barrier(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _Done:
    def wait(self) -> None: ...
