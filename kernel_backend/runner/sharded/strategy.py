"""Hold of a model on each rank its rows of every parameter, gradient and optimizer state."""

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
    """Each rank has a part of the model, by torch's FSDP2."""

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
        """Shard rank 0's weights over all ranks; raise InvalidDefinition for several models."""
        if parts_of(module):
            raise InvalidDefinition("--strategy fsdp2 shards one model, and model() returns several: leave it out")
        for each in module.parameters():  # one by one: together they would be copied as a whole
            share([each], self._ranks)
        shard(module, self._ranks, self._device)

    def gradients(self, parameters: Parameters, scaler: GradScaler, name: str) -> Gradients:
        """Return the gradients that torch sums and shards."""
        return ShardedGradients(parameters, scaler, self._ranks, self._device)

    def begin(self, module: nn.Module) -> None:
        """Do nothing: the weights were those of rank 0 when they were sharded."""

    def whole(self) -> Callable[[Tensor], Tensor]:
        """Return the function that gathers a parameter from all ranks."""
        return whole


def _return_freed_memory() -> None:
    """Make the allocator return large blocks to the system when they are freed.

    A unit's whole weights come and go in each pass. By default glibc keeps freed blocks of up to 32 MB, in pieces.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
