"""Sum gradients over the ranks after each backward pass, of which a training step may run several."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from kernel_backend.runner.data import Batch
from kernel_backend.runner.gradients.reducer import ControlFlags, SummedGradients
from kernel_backend.runner.ranks.backends import Ranks


class RankGradients:
    """Gradients of a module, summed over the ranks in buckets that are laid out at the start of an epoch.

    A step may run several backward passes, each for other parameters, and may add to earlier gradients.
    """

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        """Set up the sums; the buckets are laid out at the first step of an epoch."""
        self._module, self._ranks = module, ranks
        self._numbers = itertools.count()
        self._trainable: list[bool] = []
        self._sums: SummedGradients | None = None
        self._backward = _Backward()

    def begin_step(self, first: bool) -> None:
        """Prepare a step. At the `first` one of an epoch, lay out new buckets if other parameters are trainable now."""
        if self._ranks.size == 1 or (self._sums is not None and not first):
            return
        trainable = [each.requires_grad for each in self._module.parameters()]
        if trainable == self._trainable and self._sums is not None:
            return
        self._trainable = trainable
        scaler: Any = self._backward
        name = f"gradients{next(self._numbers)}"
        parameters = dict(self._module.named_parameters())
        # At the first step, these are a checkpoint's accumulated gradients.
        kept = {key: each.grad for key, each in parameters.items() if self._sums is None}
        self._sums = SummedGradients(parameters, scaler, self._ranks, name)
        for key, each in parameters.items():
            each.grad = kept.get(key)

    def add(
        self, loss: Tensor, scaled: Tensor, batch: Batch, flags: ControlFlags, compute: Callable[[Tensor], None]
    ) -> tuple[ControlFlags, float]:
        """Run `compute`, which computes this rank's gradients; add their sum over all ranks to the gradients so far.

        `loss` is this rank's loss, over its share of `batch`, and `scaled` the loss to differentiate, which Lightning
        may have scaled. `flags` are this rank's requests, such as to save or to exit. Return the requests of all ranks,
        combined, and the mean loss of the global batch.
        """
        sums = self._sums
        assert sums is not None
        before = {each: each.grad.clone() for each in self._module.parameters() if each.grad is not None}
        sums.begin()
        self._backward.compute = compute
        sums.add(scaled, batch.samples, batch.total, flags)
        word = sums.finish()
        for parameter, gradient in before.items():
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        scale = float(scaled.detach() / loss.detach()) if scaled is not loss and float(loss.detach()) else 1.0
        return word.flags, float(word.loss) / scale


class _Backward:
    """Substitute for torch's GradScaler: `scale(loss).backward()` calls `compute`, Lightning's own backward pass."""

    compute: Callable[[Tensor], None]

    def scale(self, loss: Tensor) -> _Scaled:
        return _Scaled(loss, self.compute)


class _Scaled:
    def __init__(self, loss: Tensor, compute: Callable[[Tensor], None]) -> None:
        self._loss, self._compute = loss, compute

    def backward(self) -> None:
        self._compute(self._loss)
