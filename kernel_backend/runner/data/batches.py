"""Which samples a step trains on: a function of seed and step, the same at any number of ranks and loader workers.

The order of an epoch is a permutation that follows from (seed, epoch). A global batch is a slice of the order, and a
rank takes its own slice of the batch. The place in the data is therefore one integer, and going there costs nothing.
Of a stream, which can only be read from its beginning, every rank reads all and keeps its slices.
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
    """Tell nobody."""


class Batches:
    """The data of a role, cut into global batches of which this process takes its shares."""

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
    ) -> None:
        """`count` logical ranks share each global batch, and this process computes `mine` of them.

        `tag` keeps draws of training samples (`sample`) and of validation samples apart. `workers` load ahead (None: as
        suits the data). `note` is told what a person should know. `digested` asks for digests of the samples that
        the first epoch is made of.
        """
        cut = BatchSplit(source.batch_size or batch_size, source.drop_last, mine, count)

        def loading(dataset: Any) -> Loading:
            return Loading(dataset, source, workers, device)

        self._data: Indexed | Stream = (
            Stream(source, cut, seed, tag, loading, note, digested)
            if source.stream
            else Indexed(source, cut, seed, tag, loading, digested)
        )

    @property
    def per_epoch(self) -> int | None:
        """Batches of an epoch; None for a stream of unknown length before its first pass has ended."""
        return self._data.per_epoch

    @property
    def samples_per_epoch(self) -> int | None:
        """Samples in the batches of an epoch; None where that is not known yet."""
        return self._data.samples_per_epoch

    @property
    def is_stream(self) -> bool:
        """Whether the samples have no index, and can only be read from their beginning."""
        return isinstance(self._data, Stream)

    @property
    def sampled(self) -> str | None:
        """A digest of what a sampler of the user's draws in the first epoch; None where there is none."""
        return None if isinstance(self._data, Stream) else self._data.sampled

    def steps(self, first: int, until: int | None) -> Iterator[list[Batch]]:
        """The batches of training from step `first` (counted from 0, over all epochs) to `until`, or without end.

        Where no worker loads them, the main random generators are left wherever the samples have brought them.
        """
        return self._data.steps(first, until)

    def in_order(self) -> Iterator[list[Batch]]:
        """All batches once, unshuffled; each sample draws the same random numbers every time.

        The main random generators are as if untouched, whether workers load or not.
        """
        batches = self._data.in_order()
        return RandomStates().apart(batches) if self._data.loading.disturbs else batches

    def keep_pairs(self) -> None:
        """Let no share be one sample alone, where that can be: BatchNorm cannot train on one. Before `steps`."""
        self._data.keep_pairs()

    def state(self) -> dict[str, Any]:
        """The place in the data after the batch that came last, as JSON; empty where the step says it all."""
        return self._data.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go to the place of an earlier `state`, before `steps`."""
        self._data.restore(state)

    def close(self) -> None:
        """End the worker processes."""
        self._data.loading.close()
