"""Let BatchNorm use the statistics of all ranks' samples (`--sync-bn`), with any backend and on any device.

torch's SyncBatchNorm needs CUDA. Here each rank's count, mean and variance are gathered and combined in the order of
the ranks, so that every rank computes the same bits. The backward pass sums gradients in the same way. The result is
the gradients of the sum of all ranks' losses, so each loss must be weighted by its fraction of the global batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.ranks.backends import Ranks, SingleRank

_NAME = "batch statistics"


class SharedStatistics:
    """Process group through which BatchNorm modules share statistics; all ranks must call each module equally often."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks: Ranks = ranks

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedStatistics:
        return self  # copies of a module, such as an average of weights, share the process group

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let the modules use only this rank's samples in the `with` block, as the other ranks do not run it."""
        ranks, self.ranks = self.ranks, SingleRank()
        try:
            yield
        finally:
            self.ranks = ranks


def synchronize(modules: Iterable[nn.Module], shared: SharedStatistics) -> None:
    """Make each BatchNorm in `modules` use the statistics of all ranks in training.

    The module objects stay the same, with another class; with one rank nothing changes. Raises InvalidDefinition for a
    BatchNorm that overrides `forward`, and for a lazy BatchNorm, whose size the first batch determines.
    """
    if shared.ranks.size == 1:
        return
    for name, module in (found for each in modules for found in each.named_modules()):
        if not isinstance(module, _BatchNorm) or isinstance(module, nn.SyncBatchNorm | _Synchronized):
            continue
        if type(module).forward is not _BatchNorm.forward or isinstance(module, LazyModuleMixin):
            raise InvalidDefinition(
                f"{name} is a {type(module).__name__}, whose statistics --sync-bn cannot join: write BatchNorm1d, "
                "BatchNorm2d or BatchNorm3d, or leave --sync-bn out"
            )
        own = type(module)
        module.__class__ = type(own.__name__, (_Synchronized, own), {"__module__": own.__module__})
        module._shared_statistics = shared  # type: ignore[assignment]


class _Synchronized(_BatchNorm):
    """BatchNorm with statistics of all ranks' samples; `synchronize` sets it as the class of existing modules."""

    _shared_statistics: SharedStatistics

    def forward(self, input: Tensor) -> Tensor:
        """Normalize as BatchNorm does; in training, use the samples of all ranks."""
        if not self.training or self._shared_statistics.ranks.size == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        factor = self.momentum
        if factor is None:  # a plain mean over all batches
            factor = 1.0 / float(cast("Tensor", self.num_batches_tracked))
        ranks = self._shared_statistics.ranks
        return batch_norm(ranks, input, self.running_mean, self.running_var, self.weight, self.bias, factor, self.eps)


def batch_norm(
    ranks: Ranks,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    factor: float,
    eps: float,
) -> Tensor:
    """Return `torch.nn.functional.batch_norm` in training mode, with the statistics of all ranks' samples.

    All ranks call it. Running statistics, if any, are updated with momentum `factor`.
    """
    axes = [axis for axis in range(input.dim()) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(input.dim())]
    # In float32, as torch does; the result has the input's dtype.
    values = input.to(torch.promote_types(input.dtype, torch.float32))
    mean, variance, count = _moments(values, axes, ranks)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), factor)
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), factor)  # the unbiased variance
    scale = torch.rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    result = (values - mean.view(shape)) * scale.view(shape)
    if bias is not None:
        result = result + bias.view(shape)
    return result.to(input.dtype)


def _moments(values: Tensor, axes: list[int], ranks: Ranks) -> tuple[Tensor, Tensor, int]:
    """Return each channel's mean and biased variance over all ranks' samples, and the number of values per channel.

    `axes` are all axes but the channels'. Raises ValueError if there is only one value per channel, as torch does.
    """
    variance, mean = torch.var_mean(values, axes, correction=0)
    own = values.numel() // values.shape[1]
    # In float64, as float32 cannot represent counts beyond 2 ** 24.
    per_rank = _Gathered.apply(torch.cat([mean, variance, mean.new_full((1,), own)]).double(), ranks)  # type: ignore[no-untyped-call]
    means, variances, counts = per_rank.split([len(mean), len(mean), 1], dim=1)
    total = int(counts.sum())
    if total <= 1:
        raise ValueError("Expected more than 1 value per channel when training")
    parts = counts / total
    joined = (parts * means).sum(0)
    spread = (parts * (variances + (means - joined).square())).sum(0)
    return joined.to(values.dtype), spread.to(values.dtype), total


class _Gathered(torch.autograd.Function):
    """Autograd function that gathers a row of values from each rank, as the rows of a matrix.

    The gradient of this rank's row is the sum of the gradients that all ranks have for it.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.all_gather(own.contiguous(), _NAME).view(ranks.size, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _SummedRow.apply(gradient, ctx.ranks), None  # type: ignore[no-untyped-call]


class _SummedRow(torch.autograd.Function):
    """Autograd function that sums all ranks' gradients of this rank's row, in the backward pass of `_Gathered`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        each = [rows.shape[1]] * ranks.size
        return ranks.all_to_all(rows.contiguous().view(-1), each, each, _NAME).view(ranks.size, -1).sum(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Gathered.apply(gradient, ctx.ranks), None  # type: ignore[no-untyped-call]
