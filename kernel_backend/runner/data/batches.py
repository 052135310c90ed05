"""Select the samples of each step from seed and step alone, at any number of ranks and loader workers.

The order of an epoch is a permutation that follows from (seed, epoch). A global batch is a slice of that order, and a
rank reads its own slice of the batch. So the position in the data is one integer, and seeking costs nothing. A stream
can only be read from its beginning: every rank reads all of it and keeps only its own slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernel_backend.runner.data.indexed import Indexed
from kernel_backend.runner.data.loading import Loading
from kernel_backend.runner.data.shares import Batch, BatchSplit
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.data.streams import Stream
from kernel_backend.runner.determinism.random_states import RandomStates


def _hush(text: str) -> None:
    """Discard a message; used if no function was given that shows messages to the user."""


class Batches:
    """Training or validation data, cut into global batches; yields the shares of each that this process computes."""

    def __init__(
        self,
        source: Source,
        batch_size: int,
        seed: int,
        tag: str,
        mine: range,
        count: int,
        workers: int | None,
        device: torch.device,
        note: Callable[[str], None] = _hush,
        digested: bool = False,
        filled: bool = False,
    ) -> None:
        """Set up batches split into `count` equal shares, one per logical rank; this process computes shares `mine`.

        `tag` separates random draws of training samples (`sample`) from those of validation samples. `workers` is the
        number of loader processes (None: chosen to suit the data). `note` receives messages for the user. `digested`
        computes digests of the first epoch's samples. With `filled`, an empty share repeats the samples of another.
        """
        cut = BatchSplit(source.batch_size or batch_size, source.drop_last, mine, count, filled=filled)
        self._cut = cut

        def loading(dataset: Any) -> Loading:
            return Loading(dataset, source, workers, device)

        self._data: Indexed | Stream = (
            Stream(source, cut, seed, tag, loading, note, digested)
            if source.stream
            else Indexed(source, cut, seed, tag, loading, digested)
        )

    @property
    def per_epoch(self) -> int | None:
        """Return the batches per epoch; None for a stream of unknown length before its first pass has ended."""
        return self._data.per_epoch

    @property
    def samples_per_epoch(self) -> int | None:
        """Return the number of samples in an epoch's batches; None if not yet known."""
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
        """Return the digest of the indices that a user's sampler draws in the first epoch; None without a sampler."""
        return None if isinstance(self._data, Stream) else self._data.sampled

    def steps(self, first: int, until: int | None) -> Iterator[list[Batch]]:
        """Iterate over training batches from step `first` (from 0, over all epochs) to `until`, or without end.

        Without loader workers, reading samples advances the main random generators.
        """
        return self._data.steps(first, until)

    def in_order(self) -> Iterator[list[Batch]]:
        """Iterate over all batches once, unshuffled; each sample draws the same random numbers every time.

        The main random generators stay untouched, with or without loader workers.
        """
        batches = self._data.in_order()
        return RandomStates().isolated(batches) if self._data.loading.disturbs else batches

    @property
    def disturbs(self) -> bool:
        """Return True if reading samples changes the state of this process's global random generators."""
        return self._data.loading.disturbs

    def own_samples(self, total: int) -> int:
        """Return how many samples of a global batch of `total` this process computes, not counting repeated ones."""
        return self._cut.own_samples(total)

    def keep_pairs(self) -> None:
        """Cut batches so that no share holds a single sample (BatchNorm needs two); call before `steps`."""
        self._cut = self._cut._replace(pairs=True)
        self._data.keep_pairs()

    def state(self) -> dict[str, Any]:
        """Return the position after the last batch as JSON; empty if the step alone determines it."""
        return self._data.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the position of an earlier `state`; call before `steps`."""
        self._data.restore(state)

    def close(self) -> None:
        """Stop the worker processes."""
        self._data.loading.close()
