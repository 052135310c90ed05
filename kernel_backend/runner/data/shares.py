"""Cut samples into global batches, and a batch into shares (one per logical rank), by pure arithmetic."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernel_backend.runner.data.sample_digest import SampleDigests


class ReadShare(NamedTuple):
    """Data that was read for one logical rank's share of a batch; `data` is None if the share has no samples."""

    data: Any = None
    seen: SampleDigests = SampleDigests()  # digest of the samples, if requested


class Batch(NamedTuple):
    """Share of a global batch, which one logical rank computes; `data` is None if the share has no samples."""

    data: Any
    samples: int  # of this share
    total: int  # of the global batch
    epoch: int
    last: bool  # of its epoch
    seen: SampleDigests = SampleDigests()


class Share(NamedTuple):
    """Indices of the samples in the share of a batch that one logical rank computes."""

    position: int  # of the first sample, counted over all epochs
    indices: Tensor

    @property
    def samples(self) -> int:
        """Return the number of samples in the share."""
        return len(self.indices)

    def __reduce__(self) -> tuple[Any, ...]:
        # A tensor would be sent as a file descriptor of shared memory: plain numbers are cheaper.
        return _share, (self.position, self.indices.tolist())


class Step(NamedTuple):
    """Global batch as this process reads it: one share for each of the logical ranks that the process computes.

    A Step is the index that a reader of samples takes; the reader returns a ReadShare for each share.
    """

    shares: list[Share]
    total: int
    epoch: int
    last: bool
    digested: bool = False  # compute digests of the samples

    def batches(self, read: list[ReadShare]) -> list[Batch]:
        """Return the shares as Batches, given the data `read` for each of them, in the same order."""
        pairs = zip(self.shares, read, strict=True)
        return [Batch(each.data, share.samples, self.total, self.epoch, self.last, each.seen) for share, each in pairs]


class BatchSplit(NamedTuple):
    """Rule that cuts samples into batches of `size`, and each batch into `ranks` shares, one per logical rank.

    This process computes the shares whose numbers are in `mine`.
    """

    size: int
    drop_last: bool
    mine: range
    ranks: int
    pairs: bool = False  # no share has a single sample, as BatchNorm cannot train on one
    filled: bool = False  # an empty share repeats another, for ranks that must take part in every step
    whole: bool = False  # shares are filled one after the other, as if one process read them as batches of its own

    def per_epoch(self, samples: int) -> int:
        """Return the number of batches in an epoch of `samples` samples.

        A smaller last batch counts, unless `drop_last` is set and there are other batches.
        """
        whole, rest = divmod(samples, self.size)
        return whole if self.drop_last and whole else whole + bool(rest)

    def used(self, samples: int) -> int:
        """Return how many of an epoch's `samples` are in its batches.

        With `drop_last`, a last short batch is left out.
        """
        return min(samples, self.per_epoch(samples) * self.size)

    def batch(self, number: int, samples: int) -> slice:
        """Return which of an epoch's `samples` samples are in batch `number`, as a slice of the epoch's order.

        With `pairs`, a last batch of a single sample is avoided: it gets one more from the batch before.
        """
        start, stop = number * self.size, min((number + 1) * self.size, samples)
        if self.pairs and not self.drop_last and self.size > 2 and samples % self.size == 1 and samples > 1:
            start -= stop == samples
            stop -= stop == samples - 1
        return slice(start, stop)

    def shares(self, total: int) -> list[slice]:
        """Return, for each share that this process computes, which samples of a batch of `total` samples are in it."""
        sharing = self._sharing(total)
        filling = self._share(total, 0) if self.whole else share(total, sharing - 1, sharing)  # never empty
        return [filling if self.filled and each.start == each.stop else each for each in self._own(total)]

    def own_samples(self, total: int) -> int:
        """Return how many samples of a batch of `total` samples this process computes.

        A sample that is repeated only to fill an empty share (option `filled`) does not count.
        """
        return sum(each.stop - each.start for each in self._own(total))

    def _own(self, total: int) -> list[slice]:
        return [self._share(total, rank) for rank in self.mine]

    def _share(self, total: int, rank: int) -> slice:
        if self.whole:
            size = self.size // self.ranks
            return slice(min(rank * size, total), min((rank + 1) * size, total))
        sharing = self._sharing(total)
        return share(total, min(rank, sharing), sharing)

    def _sharing(self, total: int) -> int:
        return max(1, total // 2) if self.pairs and total < 2 * self.ranks else self.ranks


def share(count: int, rank: int, size: int) -> slice:
    """Return which of a batch's `count` samples are in share `rank` of `size`.

    The shares are consecutive, and as equal in length as possible. The slice is empty if `rank` is not below `size`.
    """
    return slice(rank * count // size, min(count, (rank + 1) * count // size))


def _share(position: int, indices: list[int]) -> Share:
    return Share(position, torch.tensor(indices, dtype=torch.int64))
