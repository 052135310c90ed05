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
    """Strategy by which the ranks hold a model, its gradients, optimizers and checkpoints."""

    sharded: bool  # True if all ranks must take part in every forward pass
    model: type[Model]
    optimizer: type[Optimizer]
    contents: type[TrainingContents]
    checkpointer: type[Checkpointer]

    def place(self, module: nn.Module) -> None:
        """Lay out the parameters of a module as this strategy needs; call it before optimizers are built."""

    def gradients(self, parameters: Parameters, scaler: GradScaler, name: str) -> Gradients:
        """Return the object that computes and sums the gradients of these parameters."""

    def begin(self, module: nn.Module) -> None:
        """Give all ranks the initial weights of rank 0."""

    def whole(self) -> Callable[[Tensor], Tensor]:
        """Return a function that gathers a sharded parameter; all ranks must call it for each parameter."""


class Replicated:
    """Strategy by which each rank holds the whole model, and gradients are summed."""

    sharded = False
    model, optimizer, contents, checkpointer = Model, Optimizer, TrainingContents, Checkpointer

    def __init__(self, config: Config, ranks: Ranks, per_rank: Sequence[range]) -> None:
        """Set up the strategy; `per_rank` holds the logical ranks of each rank."""
        self._config, self._ranks, self._per_rank = config, ranks, per_rank

    def place(self, module: nn.Module) -> None:
        """Do nothing, as parameters need no other layout."""

    def gradients(self, parameters: Parameters, scaler: GradScaler, name: str) -> Gradients:
        """Return the object that sums gradients: by a tree with `--logical-workers`, by an all-reduce otherwise."""
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
        """Return the identity function, as no parameter is sharded."""
        return lambda tensor: tensor


def strategy_of(config: Config, ranks: Ranks, per_rank: Sequence[range], device: torch.device) -> Strategy:
    """Return the strategy of a training; a single rank holds the whole model even with `fsdp2`."""
    if config.strategy == "fsdp2" and ranks.size > 1:
        from kernel_backend.runner.sharded.strategy import Sharded  # imported here, as its imports take seconds

        return Sharded(ranks, device)
    return Replicated(config, ranks, per_rank)
