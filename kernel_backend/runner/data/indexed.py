"""Read batches of a map-style dataset; the step number determines their samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kernel_backend.runner.data import arriving
from kernel_backend.runner.data.files_of import files_of
from kernel_backend.runner.data.loading import Loading
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.data.samples import by_index
from kernel_backend.runner.data.shares import Batch, BatchSplit, Share, Step
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.data.user_sampler import SampledOrder

Indices = Callable[[int, int], Tensor]  # returns the sample indices from a start to a stop position


class Indexed:
    """Global batches of a map-style dataset, of which this process reads its shares (parts).

    After a restart, the step number alone determines where reading continues.
    """

    def __init__(
        self, source: Source, cut: BatchSplit, seed: int, tag: str, loading: Callable[[Any], Loading], digested: bool
    ) -> None:
        """Set up the batches of the dataset in `source`.

        `cut` cuts samples into batches, and batches into shares. `tag` is mixed into the random seeds, so that training
        and validation samples draw different numbers. `loading` creates the reader of a dataset. With `digested`,
        digests of the first epoch's samples are computed.
        """
        self._digested, self._dataset = digested, source.dataset
        self._sampled = None
        if source.sampler is not None:
            self._sampled = SampledOrder(source.sampler, source.role, len(source.dataset), seed, tag)
        self._count = len(source.dataset) if self._sampled is None else self._sampled.count
        self.sampled = None if self._sampled is None else self._sampled.digest
        self._cut, self._seed = cut, seed
        self.loading = loading(by_index(source, seed, tag))
        self.samples_per_epoch = cut.used(self._count)
        self.per_epoch = cut.per_epoch(self._count)

    def steps(self, first: int, until: int | None) -> Iterator[list[Batch]]:
        """Return an iterator over this process's shares of each step's batch, from step `first` to before `until`."""
        return self._read(self._planned(first, until), tuned=True)

    def in_order(self) -> Iterator[list[Batch]]:
        """Yield this process's shares of each batch of one pass over the data.

        Samples come unshuffled or, with a user's sampler, in the order of the sampler's first epoch.
        """
        indices = torch.arange if self._sampled is None else _slices(self._sampled.epoch(0))
        return self._read(self._step(0, number, indices) for number in range(self.per_epoch))

    def keep_pairs(self) -> None:
        """Cut batches so that no share has a single sample, if possible, as BatchNorm needs two in training."""
        self._cut = self._cut._replace(pairs=True)

    def state(self) -> dict[str, Any]:
        """Return {}: the step number alone determines where reading continues."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing, as `state` is always empty."""

    def _read(self, steps: Iterator[Step], tuned: bool = False) -> Iterator[list[Batch]]:
        return (step.batches(data) for step, data in self.loading.read(steps, tuned))

    def _planned(self, first: int, until: int | None) -> Iterator[Step]:
        indices, ordered = None, -1
        for step in itertools.count(first) if until is None else range(first, until):
            epoch, number = divmod(step, self.per_epoch)
            if indices is None or epoch != ordered:
                if arriving.is_wanted():
                    ahead = step if indices is None else (epoch + 1) * self.per_epoch
                    arriving.expect(self._files(ahead, epoch + 2, until))
                indices, ordered = self._order(epoch), epoch
            yield self._step(epoch, number, indices)

    def _files(self, first: int, end: int, until: int | None) -> Iterator[str]:
        """Yield the files from which this process will read its samples, as far as they are known.

        They are those of the steps from `first` to the end of the epoch before `end`.
        """
        files = files_of(self._dataset, arriving.is_coming)
        if files is None:
            return
        last = end * self.per_epoch if until is None else min(until, end * self.per_epoch)
        for epoch in range(first // self.per_epoch, end):
            indices = self._order(epoch)
            for step in range(max(first, epoch * self.per_epoch), min(last, (epoch + 1) * self.per_epoch)):
                for share in self._step(epoch, step % self.per_epoch, indices).shares:
                    yield from itertools.chain.from_iterable(map(files, share.indices.tolist()))

    def _order(self, epoch: int) -> Indices:
        if self._sampled is not None:
            return _slices(self._sampled.epoch(epoch))
        return Permutation(self._seed, epoch, self._count).slice

    def _step(self, epoch: int, number: int, indices: Indices) -> Step:
        batch = self._cut.batch(number, self._count)
        start, total = batch.start, batch.stop - batch.start
        position = epoch * self._count + start
        shares = [
            Share(position + each.start, indices(start + each.start, start + each.stop))
            for each in self._cut.shares(total)
        ]
        return Step(shares, total, epoch, number == self.per_epoch - 1, self._digested and epoch == 0)


def _slices(drawn: Tensor) -> Indices:
    return lambda start, stop: drawn[start:stop]
