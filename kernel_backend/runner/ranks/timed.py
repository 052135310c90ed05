"""Measure the time of a process group's collective operations, as communication time of the rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_backend.runner.ranks.backends import Handle, Ranks
from kernel_backend.runner.timing.clock import CLOCK, StepClock


class TimedRanks:
    """Process group that passes calls on to another one, and counts the time of blocking calls as communication."""

    def __init__(self, ranks: Ranks, clock: StepClock = CLOCK) -> None:
        self._ranks, self._block = ranks, clock.part("communication")
        self.rank, self.size, self.local_rank = ranks.rank, ranks.size, ranks.local_rank

    def allreduce_async(self, tensor: torch.Tensor, name: str) -> Handle:
        """Start to replace a tensor by its sum over all ranks; return a handle that waits for the sum."""
        return _TimedHandle(self._ranks.allreduce_async(tensor, name), self)

    def wait(self, handle: Handle) -> None:
        """Wait until the sum of an all-reduce is complete."""
        with self._block:
            handle.wait()

    def allreduce_sum(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Replace a tensor by its sum over all ranks, and return it."""
        with self._block:
            return self._ranks.allreduce_sum(tensor, name)

    def all_to_all(
        self, tensor: torch.Tensor, sends: Sequence[int], receives: Sequence[int], name: str
    ) -> torch.Tensor:
        """Send `sends[r]` elements to each rank r; return what all ranks sent to this one, in rank order."""
        with self._block:
            return self._ranks.all_to_all(tensor, sends, receives, name)

    def all_gather(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Return the concatenated flat tensors of all ranks, in rank order."""
        with self._block:
            return self._ranks.all_gather(tensor, name)

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> torch.Tensor:
        """Overwrite the tensor with the one of rank `root`, and return it."""
        with self._block:
            return self._ranks.broadcast(tensor, root)

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """Return the `value` that rank `root` has passed."""
        with self._block:
            return self._ranks.broadcast_object(value, root)

    def all_gather_object(self, value: Any) -> list[Any]:
        """Return the values that all ranks have passed, in rank order."""
        with self._block:
            return self._ranks.all_gather_object(value)

    def barrier(self) -> None:
        """Wait for all ranks."""
        with self._block:
            self._ranks.barrier()

    def close(self) -> None:
        """Disconnect from the other ranks."""
        self._ranks.close()


class _TimedHandle:
    def __init__(self, handle: Handle, ranks: TimedRanks) -> None:
        self._handle, self._ranks = handle, ranks

    def wait(self) -> None:
        self._ranks.wait(self._handle)
