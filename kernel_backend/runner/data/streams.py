"""Read batches of a stream: an iterable with an order of its own, which every rank reads from the beginning."""

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
    """Global batches of a stream, of which this process reads its shares (parts).

    After a restart, reading continues by the dataset's own saved state or, without that, after reading the stream
    again.
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
        """Set up the batches of the stream in `source`, at its beginning.

        `cut` cuts samples into batches, and batches into shares. `tag` is mixed into the random seeds, so that training
        and validation samples draw different numbers. `loading` creates the reader of a dataset. `note` reports to the
        user how long it took to reach a position. With `digested`, digests of the first epoch's samples are computed.
        """
        self._passes = StreamEpochs(source, cut, seed, tag, digested)
        self.loading = loading(self._passes)
        self._cut, self._note = cut, note
        self._place = StreamPosition(length=source.length)

    @property
    def samples_per_epoch(self) -> int | None:
        """Return the number of samples per epoch; None for a stream without a length until its first pass ends."""
        return None if self._place.length is None else self._cut.used(self._place.length)

    @property
    def per_epoch(self) -> int | None:
        """Return the number of batches per epoch; None if not yet known."""
        return None if self._place.length is None else self._cut.per_epoch(self._place.length)

    def steps(self, first: int, until: int | None) -> Iterator[list[Batch]]:
        """Yield this process's shares for each step from `first` to before `until`, over all epochs.

        Earlier batches that must be read to reach step `first` are discarded.
        """
        begin = self._place if self._place.step <= first else StreamPosition(length=self._place.length)
        for part in self._read(
            StreamStart(begin, first - begin.step), None if until is None else max(0, until - first)
        ):
            self._place = part.place
            yield part.batches

    def in_order(self) -> Iterator[list[Batch]]:
        """Yield this process's shares of each batch of one pass over the stream.

        Each sample draws the same random numbers in every pass.
        """
        for part in self._read(StreamStart(StreamPosition(), once=True), None):
            if part.last and self._place.length is None:
                self._place = self._place._replace(length=part.place.length)
            yield part.batches
            if part.last:
                return

    def keep_pairs(self) -> None:
        """Cut batches so that no share has a single sample, if possible, as BatchNorm needs two in training.

        Call it before any batch is read.
        """
        self._passes.keep_pairs()

    def state(self) -> dict[str, Any]:
        """Return, as JSON, the position in the stream after the last batch that was yielded.

        Batches that were read ahead do not count. Raises DaylightError if the dataset's own state contains a value that
        a checkpoint cannot hold.
        """
        tree, tensors = flatten(self._place._asdict())
        return {"place": tree, "tensors": base64.b64encode(safetensors.save(tensors)).decode() if tensors else ""}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue reading at the position in the stream that `state` returned earlier."""
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
