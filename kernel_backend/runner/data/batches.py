"""Select the samples of each step by seed and step number alone, whatever the number of ranks and loader workers.

The order of an epoch is a permutation that follows from (seed, epoch). A global batch is a slice of that order, and a
rank reads its own slice of the batch. So the position in the data is one integer, and moving to any position costs
nothing. A stream can only be read from its beginning: every rank reads all of it and keeps only its own slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernel_backend.runner.data.auto_workers import AutoWorkers
from kernel_backend.runner.data.indexed import Indexed
from kernel_backend.runner.data.loading import Loading
from kernel_backend.runner.data.sample_state import tell_sample_state
from kernel_backend.runner.data.shares import Batch, BatchSplit
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.data.streams import Stream
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.timing.clock import CLOCK


def _hush(text: str) -> None:
    """Discard `text`, a message to the user; it is the default `note` for callers that show no messages."""


class Batches:
    """Training or validation data, cut into global batches; this process reads its own shares (parts) of each batch."""

    def __init__(
        self,
        source: Source,
        batch_size: int,
        seed: int,
        tag: str,
        mine: range,
        count: int,
        workers: int | AutoWorkers | None,
        device: torch.device,
        note: Callable[[str], None] = _hush,
        digested: bool = False,
        filled: bool = False,
        whole: bool = False,
        limit: Callable[[str], None] = _hush,
    ) -> None:
        """Set up batches, each split into `count` equal shares, one per logical rank; this process reads shares `mine`.

        `tag` is mixed into the random seeds, so that training samples (`sample`) and validation samples draw different
        numbers. `workers` is the number of loader processes (None: chosen to suit the data; AutoWorkers: tuned in
        `steps`). `device` is the one that trains. `note` receives messages for the user. With `digested`, digests of
        the first epoch's samples are computed. With `filled`, an empty share repeats the samples of another share. With
        `whole`, the shares of a short batch are filled one after the other, each up to its size in other batches.
        `limit` receives why batches may differ after a restart.
        """
        cut = BatchSplit(source.batch_size or batch_size, source.drop_last, mine, count, filled=filled, whole=whole)
        self._cut = cut
        if digested and not source.stream:  # the training's own data, once; a stream is read anew from its start
            tell_sample_state(source, limit)

        def loading(dataset: Any) -> Loading:
            return Loading(dataset, source, workers, device)

        self._data: Indexed | Stream = (
            Stream(source, cut, seed, tag, loading, note, digested)
            if source.stream
            else Indexed(source, cut, seed, tag, loading, digested)
        )

    @property
    def per_epoch(self) -> int | None:
        """Return the number of batches per epoch; None for a stream of unknown length until its first pass ends."""
        return self._data.per_epoch

    @property
    def samples_per_epoch(self) -> int | None:
        """Return the number of samples that an epoch's batches contain; None if not yet known."""
        return self._data.samples_per_epoch

    @property
    def last_total(self) -> int | None:
        """Return the number of samples in an epoch's last batch; None if not yet known."""
        if not self.per_epoch or self.samples_per_epoch is None:
            return None
        return self.samples_per_epoch - (self.per_epoch - 1) * self._cut.size

    @property
    def is_stream(self) -> bool:
        """Return True if samples have no index and can only be read from the beginning."""
        return isinstance(self._data, Stream)

    @property
    def sampled(self) -> str | None:
        """Return a digest of the indices that the user's sampler draws in the first epoch; None without a sampler."""
        return None if isinstance(self._data, Stream) else self._data.sampled

    def steps(self, first: int, until: int | None) -> Iterator[list[Batch]]:
        """Yield this process's shares of the batch of each training step, from step `first` to before step `until`.

        Steps are counted from 0 over all epochs. With `until` None the iteration does not end. Without loader workers,
        reading samples changes the states of the global random generators.
        """
        steps = self._data.steps(first, until)
        CLOCK.used("stream" if self.is_stream else "indexed", self._data.loading.workers)
        return CLOCK.each("data", steps)

    def in_order(self) -> Iterator[list[Batch]]:
        """Yield this process's shares of each batch of one pass over the data, unshuffled.

        Each sample draws the same random numbers in every pass. The states of the global random generators stay as they
        are, with or without loader workers.
        """
        batches = self._data.in_order()
        return RandomStates().isolated(batches) if self._data.loading.disturbs else batches

    @property
    def disturbs(self) -> bool:
        """Return True if reading samples changes the state of this process's global random generators.

        This is so without loader workers, unless the samples are tensors in memory.
        """
        return self._data.loading.disturbs

    def own_samples(self, total: int) -> int:
        """Return how many of the `total` samples of a global batch this process computes.

        A sample that is repeated only to fill an empty share (option `filled`) does not count.
        """
        return self._cut.own_samples(total)

    def keep_pairs(self) -> None:
        """Cut batches so that no share has a single sample, as BatchNorm needs two; call it before `steps`."""
        self._cut = self._cut._replace(pairs=True)
        self._data.keep_pairs()

    def state(self) -> dict[str, Any]:
        """Return the position in the data after the last batch, as JSON; {} if the step number alone determines it."""
        return self._data.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue reading at the position in the data that `state` returned earlier; call it before `steps`."""
        self._data.restore(state)

    def close(self) -> None:
        """Stop the worker processes."""
        self._data.loading.close()
