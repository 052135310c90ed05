"""Shard a model over the ranks: each holds some rows of every parameter, gradient and optimizer state."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer
from kernel_backend.runner.checkpoint.contents import TrainingContents
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer
from kernel_backend.runner.definition.functions import parts_of
from kernel_backend.runner.gradients.reducer import Gradients, Parameters
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.ranks.backends import Ranks
from kernel_backend.runner.sharded.checkpointer import ShardedCheckpointer
from kernel_backend.runner.sharded.contents import ShardedContents
from kernel_backend.runner.sharded.gradients import ShardedGradients
from kernel_backend.runner.sharded.rows import whole
from kernel_backend.runner.sharded.stateful import ShardedModel, ShardedOptimizer
from kernel_backend.runner.sharded.units import shard

_MMAP_THRESHOLD, _LARGE = -3, 1 << 20  # an option of glibc's mallopt, and bytes


class Sharded:
    """Strategy that shards the model over the ranks with torch's FSDP2."""

    sharded = True
    model: type[Model] = ShardedModel
    optimizer: type[Optimizer] = ShardedOptimizer
    contents: type[TrainingContents] = ShardedContents
    checkpointer: type[Checkpointer] = ShardedCheckpointer

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self._ranks, self._device = ranks, device
        if device.type == "cpu":
            _return_freed_memory()

    def place(self, module: nn.Module) -> None:
        """Copy rank 0's weights to all ranks and shard them, in place.

        Raises InvalidDefinition if there are several models.
        """
        if parts_of(module):
            raise InvalidDefinition("--strategy fsdp2 shards one model, and model() returns several: leave it out")
        for each in module.parameters():  # one by one, as together they would be copied at once
            share([each], self._ranks)
        shard(module, self._ranks, self._device)

    def gradients(self, parameters: Parameters, scaler: GradScaler, name: str) -> Gradients:
        """Return an object for the gradients of a sharded model, which torch sums and shards in the backward pass."""
        return ShardedGradients(parameters, scaler, self._ranks, self._device)

    def begin(self, module: nn.Module) -> None:
        """Do nothing, as `place` has copied the weights of rank 0."""

    def whole(self) -> Callable[[Tensor], Tensor]:
        """Return the function that gathers a parameter from its rows on all ranks; all ranks must call it."""
        return whole


def _return_freed_memory() -> None:
    """Make the memory allocator (glibc) return large blocks to the system as soon as they are freed.

    By default it keeps freed blocks of up to 32 MB. The whole weights of each FSDP unit (a module that is gathered for
    its computation) are allocated and freed in each pass, which would fragment memory.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
