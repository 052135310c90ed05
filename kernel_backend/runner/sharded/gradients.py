"""Use the gradients that torch's FSDP2 sums and shards, and sum sample counts, losses and flags separately."""

from __future__ import annotations

import torch
from torch.amp import GradScaler

from kernel_backend.runner.gradients.reducer import ControlFlags, ControlWord, Parameters
from kernel_backend.runner.ranks.backends import Ranks


class ShardedGradients:
    """Gradients of a model whose parameters are sharded: each rank holds some rows of each gradient.

    Every rank must compute the same number of shares of the batch.
    """

    def __init__(self, parameters: Parameters, scaler: GradScaler, ranks: Ranks, device: torch.device) -> None:
        self._parameters, self._scaler, self._ranks = list(parameters.values()), scaler, ranks
        self._word = torch.zeros(2 + len(ControlFlags._fields), dtype=torch.float64, device=device)

    def begin(self) -> None:
        """Begin a step: discard the gradients of the previous step."""
        self._word.zero_()
        for parameter in self._parameters:
            parameter.grad = None

    def add(self, loss: torch.Tensor | None, samples: int, total: int, flags: ControlFlags) -> None:
        """Compute the gradients of a share (part) of the batch; `loss` is the mean over its `samples`.

        During the backward pass torch sums the gradients of each FSDP unit, a group of parameters, over the ranks. The
        batch has `total` samples. `flags` are this rank's requests.
        """
        self._word[0] += samples
        for index, flag in enumerate(flags, start=2):
            if flag:
                self._word[index].fill_(1.0)
        if loss is not None:
            weighted = loss * (samples / total)
            self._word[1] += weighted.detach()
            self._scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]

    def finish(self) -> ControlWord:
        """Return sample count, loss and flags, summed over the ranks; torch has summed the gradients already."""
        samples, loss, *flags = self._ranks.allreduce_sum(self._word, "control word").tolist()
        return ControlWord(int(samples), loss, ControlFlags(*(flag > 0 for flag in flags)))
