"""Read a stream (an iterable without indices) in global batches, pass after pass, and record the position.

Each sample gets its own random numbers.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data.sample_digest import SampleDigests, see
from kernel_backend.runner.data.samples import one_thread
from kernel_backend.runner.data.shares import Batch, BatchSplit
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.generators import GeneratorDraws


class StreamPosition(NamedTuple):
    """Position in a stream after a training batch: numbers of batches and samples read, and the dataset's own state."""

    step: int = 0  # batches so far, over all passes
    epoch: int = 0
    before: int = 0  # samples of earlier epochs
    taken: int = 0  # samples of this epoch so far
    length: int | None = None  # samples per pass, once known
    dataset: Any = None  # its state_dict here; between two passes, its last one within the earlier pass,
    rest: int = 0  # this number of samples before the end of that pass


class StreamStart(NamedTuple):
    """Request to read a stream from position `place` on, after discarding the next `left_out` batches."""

    place: StreamPosition
    left_out: int = 0
    once: bool = False  # stop at the end of the pass


class StreamPart(NamedTuple):
    """This process's shares of a stream's global batch, and the position in the stream after that batch."""

    batches: list[Batch]
    place: StreamPosition
    last: bool  # of its pass
    again: int  # samples that were read again to reach the position
    seconds: float  # time for reading them


class StreamEpochs(Dataset[Any]):
    """Dataset of consecutive passes over a stream (an iterable without indices), read in order.

    Its index is a StreamStart to continue at that position, or None to read the next batch.
    """

    def __init__(self, source: Source, cut: BatchSplit, seed: int, tag: str, digested: bool = False) -> None:
        """Set up the passes over the stream in `source`; `cut` cuts samples into batches, and batches into shares.

        `tag` is mixed into the random seeds, so that training and validation samples draw different numbers. With
        `digested`, digests of the first pass's samples are computed.
        """
        self._source, self._cut, self._digested = source, cut, digested
        self._draws, self._collating = seeds.Draws(seed, tag), GeneratorDraws(source.collate, seed, f"collate {tag}")
        self._opening = GeneratorDraws(source.dataset, seed, f"pass {tag}")
        self._parts: Iterator[StreamPart] = iter(())

    def keep_pairs(self) -> None:
        """Cut batches so that no share holds a single sample, if possible, as BatchNorm needs two in training."""
        self._cut = self._cut._replace(pairs=True)

    def __getitem__(self, start: StreamStart | None) -> StreamPart | None:
        if start is not None:
            self._parts = self._read(start)
        with one_thread():
            return next(self._parts, None)

    def _read(self, start: StreamStart) -> Iterator[StreamPart]:
        place, left_out, began, again = start.place, start.left_out, time.perf_counter(), 0
        if place.dataset is not None and place.taken == 0:
            self._end_again(place)
        while True:
            a_pass = self._open(place, place.dataset if place.taken else None)
            again += a_pass.again
            for chunk in a_pass.chunks(self._cut):
                place = chunk.place
                if left_out:
                    left_out, again = left_out - 1, again + len(chunk.samples)
                    continue
                seconds = time.perf_counter() - began if again else 0.0
                yield StreamPart(self._batches(chunk), place, chunk.last, again, seconds)
                again = 0
            if start.once:
                return

    def _end_again(self, place: StreamPosition) -> None:
        """Bring the dataset to its state at the end of a pass, by reading the last samples of that pass again.

        The state that a dataset saves after the last sample is ambiguous: for some datasets it means that no samples
        are left, for others that a new pass begins. So the last state saved within the pass is restored, and the
        remaining samples of the pass are read and discarded.
        """
        within = place._replace(epoch=place.epoch - 1, before=place.before - place.rest)
        self._open(within, place.dataset).skip_to_end()

    def _open(self, place: StreamPosition, state: Any) -> _Pass:
        # The dataset's own generators continue to the end of the pass; its state may restore them.
        self._opening.look()
        self._collating.look()
        self._opening.at(place.epoch)
        return _Pass(self._source, place, state, self._draws)

    def _batches(self, chunk: _Chunk) -> list[Batch]:
        return [self._batch(chunk, share) for share in self._cut.shares(len(chunk.samples))]

    def _batch(self, chunk: _Chunk, share: slice) -> Batch:
        samples = chunk.samples[share]
        data, seen = None, SampleDigests()
        if samples:
            seen = see(samples) if self._digested and chunk.epoch == 0 else seen
            self._collating.at(chunk.position + share.start)
            data = self._source.collate(samples)
        return Batch(data, len(samples), len(chunk.samples), chunk.epoch, chunk.last, seen)


class _Chunk(NamedTuple):
    samples: list[Any]
    position: int  # of the first sample, over all passes
    epoch: int
    place: StreamPosition  # the position after it
    last: bool = False


class _Pass:
    """Reader of one pass over a stream, from a given position to the end of the pass."""

    def __init__(self, source: Source, place: StreamPosition, state: Any, draws: seeds.Draws) -> None:
        """Set up reading at `place`: restore `state` if the dataset supports that, else read and discard samples.

        `state` is the dataset's own saved state, or None. `draws` has the random seeds of the samples.
        """
        self._source, self._begin, self._draws = source, place, draws
        dataset = source.dataset
        if callable(getattr(dataset, "set_epoch", None)):
            dataset.set_epoch(place.epoch)
        known = state is not None
        if known and _keeps_place(dataset):
            dataset.load_state_dict(copy.deepcopy(state))
        self._samples: Any = iter(dataset)
        self._resumable = next((each for each in (dataset, self._samples) if _keeps_place(each)), None)
        if known and self._resumable is not None and self._resumable is not dataset:
            self._resumable.load_state_dict(copy.deepcopy(state))
        found = place.taken == 0 or (known and self._resumable is not None)
        self._taken = place.taken if found else 0
        self._within = place  # the newest position after which more samples came
        self.again = 0 if found else self._read_to(place.taken)

    def chunks(self, cut: BatchSplit) -> Iterator[_Chunk]:
        """Yield the remaining global batches of the pass.

        One batch is read in advance, so that the last of the pass can be marked as such.
        """
        found = self._chunks(cut)
        ahead = next(found, None)
        if ahead is None:
            raise self._nothing()
        for chunk in found:
            yield ahead
            self._within, ahead = ahead.place, chunk
        yield ahead._replace(last=True, place=self._end(ahead.place.step))

    def skip_to_end(self) -> None:
        """Read and discard the remaining samples of the pass."""
        for _ in self._each():
            pass

    def _chunks(self, cut: BatchSplit) -> Iterator[_Chunk]:
        for step in itertools.count(self._begin.step + 1):
            samples = list(itertools.islice(self._each(), cut.size))
            whole, alone = len(samples) == cut.size, len(samples) == self._taken
            if samples and (whole or alone or not cut.drop_last):
                position = self._begin.before + self._taken - len(samples)
                yield _Chunk(samples, position, self._begin.epoch, self._place(step))
            if not whole:
                return

    def _each(self) -> Iterator[Any]:
        while True:
            self._draws.at(self._begin.before + self._taken)
            try:
                sample = next(self._samples)
            except StopIteration:
                return
            self._taken += 1
            if self._taken == 1:
                self._within = self._place(self._begin.step)
            yield sample

    def _read_to(self, taken: int) -> int:
        for _ in itertools.islice(self._each(), taken):
            pass
        if self._taken < taken:
            raise InvalidDefinition(
                f"the stream of {self._source.role}() ended after {self._taken} samples, where it had given {taken} "
                "before: it must give the same samples whenever it is read"
            )
        return taken

    def _place(self, step: int) -> StreamPosition:
        # A copy, as reading further may modify the returned state.
        state = copy.deepcopy(self._resumable.state_dict()) if self._resumable is not None else None
        return self._begin._replace(step=step, taken=self._taken, dataset=state, rest=0)

    def _end(self, step: int) -> StreamPosition:
        begin = self._begin
        length = self._taken if begin.length is None else begin.length
        end = StreamPosition(step, begin.epoch + 1, begin.before + self._taken, 0, length)
        if self._resumable is not self._source.dataset:
            return end  # the iterator and its state are not valid after the pass
        return end._replace(dataset=self._within.dataset, rest=self._taken - self._within.taken)

    def _nothing(self) -> InvalidDefinition:
        kind = type(self._source.dataset).__name__
        return InvalidDefinition(
            f"the {kind} of {self._source.role}() gave no sample in pass {self._begin.epoch + 1} over it. One that can "
            "be read only once, such as a generator, serves for one pass: return an object whose __iter__ begins anew, "
            "such as a list or an IterableDataset"
        )


def _keeps_place(obj: Any) -> bool:
    return all(callable(getattr(obj, name, None)) for name in ("state_dict", "load_state_dict"))
