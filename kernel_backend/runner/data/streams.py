"""Read batches of a stream: an iterable in its own order, read by every rank from its beginning."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from safetensors import torch as safetensors

from kernel_backend.checkpoints.writer import flatten, unflatten
from kernel_backend.runner.data.loading import Loading
from kernel_backend.runner.data.shares import Batch, BatchSplit
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.data.stream_batches import StreamEpochs, StreamPart, StreamPosition, StreamStart


class Stream:
    """Global batches of a stream, limited to the shares that this process computes.

    The position is restored from the dataset's own state, or by reading the stream again.
    """

    def __init__(
        self,
        source: Source,
        cut: BatchSplit,
        seed: int,
        tag: str,
        loading: Callable[[Any], Loading],
        note: Callable[[str], None],
        digested: bool,
    ) -> None:
        """Set up the batches of a stream at its beginning.

        `note` receives the cost of seeking to a position; `digested` computes digests of the first epoch's samples.
        """
        self._passes = StreamEpochs(source, cut, seed, tag, digested)
        self.loading = loading(self._passes)
        self._cut, self._note = cut, note
        self._place = StreamPosition(length=source.length)

    @property
    def samples_per_epoch(self) -> int | None:
        """Return the samples per epoch: the stream's length, or the count of the first pass; None before its end."""
        return None if self._place.length is None else self._cut.used(self._place.length)

    @property
    def per_epoch(self) -> int | None:
        """Return the batches per epoch; None if not yet known."""
        return None if self._place.length is None else self._cut.per_epoch(self._place.length)

    def steps(self, first: int, until: int | None) -> Iterator[list[Batch]]:
        """Iterate over training batches of all epochs from step `first` on; earlier batches are read and discarded."""
        begin = self._place if self._place.step <= first else StreamPosition(length=self._place.length)
        for part in self._read(
            StreamStart(begin, first - begin.step), None if until is None else max(0, until - first)
        ):
            self._place = part.place
            yield part.batches

    def in_order(self) -> Iterator[list[Batch]]:
        """Iterate over all batches of one pass; each sample draws the same random numbers every time."""
        for part in self._read(StreamStart(StreamPosition(), once=True), None):
            if part.last and self._place.length is None:
                self._place = self._place._replace(length=part.place.length)
            yield part.batches
            if part.last:
                return

    def keep_pairs(self) -> None:
        """Cut batches so that no share holds a single sample, if possible; call before any batch is read."""
        self._passes.keep_pairs()

    def state(self) -> dict[str, Any]:
        """Return the position after the last batch that was yielded, as JSON; batches read ahead do not count.

        Raises DaylightError if the dataset's own state contains a value that a checkpoint cannot hold.
        """
        tree, tensors = flatten(self._place._asdict())
        return {"place": tree, "tensors": base64.b64encode(safetensors.save(tensors)).decode() if tensors else ""}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the position of an earlier `state`."""
        if state:
            tensors = safetensors.load(base64.b64decode(state["tensors"])) if state["tensors"] else {}
            self._place = StreamPosition(**unflatten(state["place"], tensors))

    def _read(self, start: StreamStart, count: int | None) -> Iterator[StreamPart]:
        wanted = itertools.chain([start], itertools.repeat(None))
        for _, part in self.loading.read(itertools.islice(wanted, count)):
            if part.again:
                self._note(
                    f"{part.again:,} samples of the stream were read again in {part.seconds:.1f} s to find the place: "
                    "with state_dict and load_state_dict on the dataset it is found at once"
                )
            yield part
