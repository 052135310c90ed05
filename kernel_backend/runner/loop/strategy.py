"""Choose whether each rank holds the whole model (`ddp`) or a shard of it (`fsdp2`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from kernel_backend.model.experiment import Config
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer
from kernel_backend.runner.checkpoint.contents import TrainingContents
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer
from kernel_backend.runner.gradients.reducer import Gradients, OwnGradients, Parameters, SummedGradients
from kernel_backend.runner.gradients.tree import TreeGradients
from kernel_backend.runner.loop.objective import named
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.ranks.backends import Ranks


class Strategy(Protocol):
    """Way in which the ranks of a training hold its model, gradients, optimizers and checkpoints."""

    sharded: bool  # True if all ranks must take part in every forward pass
    model: type[Model]
    optimizer: type[Optimizer]
    contents: type[TrainingContents]
    checkpointer: type[Checkpointer]

    def place(self, module: nn.Module) -> None:
        """Arrange a module's parameters on the ranks as this strategy needs; call it before optimizers are built."""

    def gradients(self, parameters: Parameters, scaler: GradScaler, name: str) -> Gradients:
        """Return an object that computes the gradients of these parameters and sums them over the ranks.

        `name` is unique within a training; it identifies the gradients in messages between ranks.
        """

    def begin(self, module: nn.Module) -> None:
        """Copy the initial weights of rank 0 to all ranks."""

    def whole(self) -> Callable[[Tensor], Tensor]:
        """Return a function that gathers a sharded parameter and returns it as a whole.

        All ranks must call that function for each parameter. It returns a parameter that is not sharded unchanged.
        """


class Replicated:
    """Strategy in which each rank holds the whole model, and gradients are summed over the ranks."""

    sharded = False
    model, optimizer, contents, checkpointer = Model, Optimizer, TrainingContents, Checkpointer

    def __init__(self, config: Config, ranks: Ranks, per_rank: Sequence[range]) -> None:
        """Set up the strategy; `per_rank` has the range of logical ranks that each rank computes."""
        self._config, self._ranks, self._per_rank = config, ranks, per_rank

    def place(self, module: nn.Module) -> None:
        """Do nothing: parameters stay as they are."""

    def gradients(self, parameters: Parameters, scaler: GradScaler, name: str) -> Gradients:
        """Return an object that sums the gradients of these parameters over the ranks.

        With `--logical-workers` it sums in a tree, otherwise by an all-reduce. `name` identifies the gradients in
        messages.
        """
        parts = self._config.accumulate or 1
        if self._config.logical_workers is not None:
            leaves = [range(each.start * parts, each.stop * parts) for each in self._per_rank]
            return TreeGradients(parameters, scaler, self._ranks, leaves, named("tree", name))
        if self._ranks.size == 1:
            return OwnGradients(parameters, scaler)
        return SummedGradients(parameters, scaler, self._ranks, named("gradients", name), parts)

    def begin(self, module: nn.Module) -> None:
        """Copy the weights of rank 0 to all ranks."""
        share(list(module.parameters()), self._ranks)

    def whole(self) -> Callable[[Tensor], Tensor]:
        """Return the identity function, as every parameter is whole."""
        return lambda tensor: tensor


def strategy_of(config: Config, ranks: Ranks, per_rank: Sequence[range], device: torch.device) -> Strategy:
    """Return the strategy of a training; a single rank holds the whole model even with `fsdp2`."""
    if config.strategy == "fsdp2" and ranks.size > 1:
        from kernel_backend.runner.sharded.strategy import Sharded  # imported here, as its imports take seconds

        return Sharded(ranks, device)
    return Replicated(config, ranks, per_rank)
