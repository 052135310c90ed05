"""Train with a fixed number of logical ranks on any number of processes, with bit-identical results.

A logical rank does the work of one rank of a training with `--logical-workers` ranks. Each batch is split into one
share per logical rank. Dropout, augmentation and BatchNorm see one share at a time, so the result depends on the number
of logical ranks alone. A process that computes several logical ranks takes them one after the other, each with its own
buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch
from torch import Tensor, nn

from kernel_backend.runner.determinism.digests import tensor_digest
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.ranks.backends import Ranks

Buffers = dict[str, Tensor]
Beside = Mapping[str, nn.Module]


class LogicalRanks:
    """Module buffers (such as BatchNorm's) of the logical ranks that this process computes: `mine` of all `count`."""

    def __init__(self, model: nn.Module, mine: range, count: int, beside: Beside = MappingProxyType({})) -> None:
        """Give each logical rank in `mine` a copy of the current buffers of `model` and of the modules in `beside`.

        `count` is the number of all logical ranks. `beside` has modules outside the model that have buffers too, such
        as a stateful loss, by name.
        """
        self.mine, self.count = mine, count
        self.beside = dict(beside)
        self._modules = {"": model} | {f"{name}.": module for name, module in beside.items()}
        self._now = mine.start
        self._kept: dict[int, Buffers] = {rank: {} for rank in mine} if len(mine) > 1 else {}
        self._saved: dict[str, tuple[str, Tensor]] = {}  # logical rank 0's buffers by name: digest and copy
        self._agree()

    def live(self) -> Buffers:
        """Return the modules' current buffers by name.

        They are looked up on each call, as a forward pass may replace a buffer by a new tensor.
        """
        return {
            f"{prefix}{name}": tensor
            for prefix, module in self._modules.items()
            for name, tensor in module.named_buffers(remove_duplicate=False)
        }

    def take(self, rank: int) -> None:
        """Put the buffers of logical rank `rank` into the modules; call it before computing that rank's share."""
        if rank == self._now:
            return
        # All of them, as BatchNorm writes to its statistics without incrementing their versions.
        for name, tensor in self.live().items():
            _keep(self._kept[self._now], name, tensor)
            if name in self._kept[rank]:
                self._put(name, self._kept[rank][name])
        self._now = rank

    def share(self, ranks: Ranks) -> None:
        """Copy the model's buffers, such as running means, of logical rank 0 to all logical ranks of all processes.

        All processes call it together; `ranks` connects them.
        """
        self.take(self.mine.start)
        share(list(self.live().values()), ranks)
        self._agree()

    def gather(self, ranks: Ranks) -> dict[int, Buffers]:
        """Collect every logical rank's buffers for a checkpoint, as copies in host memory; all processes call it.

        Return them, by logical rank and name, on the process that computes logical rank 0, and {} on other processes.
        For logical ranks other than 0, only buffers that differ from those of logical rank 0 are returned. Digests show
        which buffers differ, and which have changed since the last call, so that large constant buffers (a mask, a
        position table) are neither sent nor copied nor saved again.
        """
        first = _digests(self._of(0)) if 0 in self.mine else {}
        common = ranks.broadcast_object(first) if self.count > 1 else first
        others = {rank: self._unlike(rank, common) for rank in self.mine if rank != 0}
        per_rank = ranks.all_gather_object(others) if self.count > 1 else []
        if 0 not in self.mine:
            return {}
        return {0: self._copied(first)} | {rank: buffers for each in per_rank for rank, buffers in each.items()}

    def restore(self, saved: Mapping[int, Buffers]) -> None:
        """Restore the buffers of every logical rank that this process computes.

        `saved` is the result of `gather`. It may lack the buffers of logical rank 0 if the model already has them.
        """
        self.take(self.mine.start)
        for name, tensor in saved.get(0, {}).items():
            self._put(name, tensor)
        self._agree()
        live = self.live()
        for rank in self.mine:
            for name, tensor in saved.get(rank, {}).items():
                if rank == self._now:
                    self._put(name, tensor)
                else:
                    _keep(self._kept[rank], name, tensor.to(live[name].device))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Restore, after the `with` block, the buffers that each logical rank of this process had before it."""
        own = {rank: {name: tensor.clone() for name, tensor in self._of(rank).items()} for rank in self.mine}
        yield
        self.restore(own)

    def _of(self, rank: int) -> Buffers:
        return self.live() if rank == self._now else self._kept[rank]

    def _unlike(self, rank: int, common: Mapping[str, str]) -> Buffers:
        own = self._of(rank)
        return {name: _copy(own[name]) for name, digest in _digests(own).items() if digest != common.get(name)}

    def _copied(self, digests: Mapping[str, str]) -> Buffers:
        own = self._of(0)
        before = self._saved
        self._saved = {
            name: before[name] if before.get(name, ("",))[0] == digest else (digest, _copy(own[name]))
            for name, digest in digests.items()
        }
        return {name: copy for name, (_, copy) in self._saved.items()}

    def _agree(self) -> None:
        """Copy the modules' current buffers to all logical ranks that this process computes."""
        live = self.live()
        for kept in self._kept.values():
            for name, tensor in live.items():
                _keep(kept, name, tensor)

    def _put(self, name: str, tensor: Tensor) -> None:
        """Set the buffer called `name`, of the model or of a module in `beside`, to the values of `tensor`."""
        prefix = max((each for each in self._modules if name.startswith(each)), key=len)
        path, _, leaf = name.removeprefix(prefix).rpartition(".")
        module = self._modules[prefix].get_submodule(path)
        buffer = module._buffers[leaf]
        if buffer is not None and buffer.shape == tensor.shape:
            with torch.no_grad():
                buffer.copy_(tensor)
        else:
            module._buffers[leaf] = tensor.detach().clone().to(tensor.device if buffer is None else buffer.device)


def _digests(buffers: Buffers) -> dict[str, str]:
    return {name: tensor_digest(tensor) for name, tensor in buffers.items()}


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def _keep(kept: Buffers, name: str, tensor: Tensor) -> None:
    """Store a copy of `tensor` in `kept` under `name`, in the memory of the earlier copy if that has the same shape."""
    if name in kept and kept[name].shape == tensor.shape:
        kept[name].copy_(tensor.detach())
    else:
        kept[name] = tensor.detach().clone()
