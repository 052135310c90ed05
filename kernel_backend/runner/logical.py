"""The logical ranks of a training: those that its result counts, however many processes compute them.

Dropout, augmentation and BatchNorm see one share of the batch. Which shares there are is fixed by the number of
logical ranks; a process that computes several takes them one after the other, each with buffers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from kernel_backend.checkpoints.streams import Digesting
from kernel_backend.checkpoints.writer import pieces
from kernel_backend.runner.ranks import Ranks
from kernel_backend.runner.validation import share

Buffers = dict[str, Tensor]


class LogicalRanks:
    """The logical ranks `mine` of `count`, and what each has in the model's buffers (BatchNorm's statistics)."""

    def __init__(self, model: nn.Module, mine: range, count: int) -> None:
        self.mine, self.count = mine, count
        self._model = model
        self._now = mine.start
        self._kept: dict[int, Buffers] = {rank: {} for rank in mine} if len(mine) > 1 else {}
        self._agree()

    @property
    def has_buffers(self) -> bool:
        """Whether the model has any."""
        return bool(self._live())

    def take(self, rank: int) -> None:
        """Let the model have the buffers of logical rank `rank`."""
        if rank == self._now:
            return
        # All of them: BatchNorm writes to its statistics without counting their versions up.
        for name, tensor in self._live().items():
            _keep(self._kept[self._now], name, tensor)
            if name in self._kept[rank]:
                self._put(name, self._kept[rank][name])
        self._now = rank

    def share(self, ranks: Ranks) -> None:
        """Give every logical rank the buffers of logical rank 0: at steps that all know, never by a clock."""
        self.take(self.mine.start)
        share(list(self._live().values()), ranks)
        self._agree()

    def gather(self, ranks: Ranks) -> dict[int, Buffers]:
        """On rank 0 the buffers of logical rank 0, and of each other one those that differ: copies on the host.

        Called by all. What differs is found by digests, so that large constant buffers (a mask, a table of positions)
        are neither sent nor saved once more for each logical rank.
        """
        common = ranks.broadcast_object(_digests(self._of(0)) if 0 in self.mine else None)
        others = {rank: self._unlike(rank, common) for rank in self.mine if rank != 0}
        gathered = {rank: buffers for each in ranks.all_gather_object(others) for rank, buffers in each.items()}
        return {0: _copies(self._of(0))} | gathered if 0 in self.mine else {}

    def restore(self, saved: Mapping[int, Buffers]) -> None:
        """Let every logical rank here have what was gathered; those of logical rank 0 may be in the model already."""
        self.take(self.mine.start)
        for name, tensor in saved.get(0, {}).items():
            self._put(name, tensor)
        self._agree()
        live = self._live()
        for rank in self.mine:
            for name, tensor in saved.get(rank, {}).items():
                if rank == self._now:
                    self._put(name, tensor)
                else:
                    _keep(self._kept[rank], name, tensor.to(live[name].device))

    def _live(self) -> Buffers:
        """The model's own, asked anew each time: a forward pass may put another tensor in a buffer's place."""
        return dict(self._model.named_buffers(remove_duplicate=False))

    def _of(self, rank: int) -> Buffers:
        return self._live() if rank == self._now else self._kept[rank]

    def _unlike(self, rank: int, common: Mapping[str, str]) -> Buffers:
        own = self._of(rank)
        return _copies({name: own[name] for name, digest in _digests(own).items() if digest != common.get(name)})

    def _agree(self) -> None:
        """All logical ranks here have what the model has."""
        live = self._live()
        for kept in self._kept.values():
            for name, tensor in live.items():
                _keep(kept, name, tensor)

    def _put(self, name: str, tensor: Tensor) -> None:
        """Give one of the model's buffers this value."""
        path, _, leaf = name.rpartition(".")
        module = self._model.get_submodule(path)
        buffer = module._buffers[leaf]
        if buffer is not None and buffer.shape == tensor.shape:
            with torch.no_grad():
                buffer.copy_(tensor)
        else:
            module._buffers[leaf] = tensor.detach().clone().to(tensor.device if buffer is None else buffer.device)


def _digests(buffers: Buffers) -> dict[str, str]:
    return {name: _digest(tensor) for name, tensor in buffers.items()}


def _digest(tensor: Tensor) -> str:
    """The xxh3-128 of dtype, shape and values."""
    seen = Digesting()
    for piece in pieces({"": tensor}):
        seen.take(piece)
    return seen.digest


def _copies(buffers: Buffers) -> Buffers:
    return {name: tensor.detach().cpu().clone() for name, tensor in buffers.items()}


def _keep(kept: Buffers, name: str, tensor: Tensor) -> None:
    """Copy into what is kept under this name, or make it."""
    if name in kept and kept[name].shape == tensor.shape:
        kept[name].copy_(tensor.detach())
    else:
        kept[name] = tensor.detach().clone()
