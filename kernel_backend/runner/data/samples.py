"""Read the samples of a share (one logical rank's part of a batch); each sample gets random numbers of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from kernel_backend.runner.data.sample_digest import SampleDigests, are_rows, see, see_rows
from kernel_backend.runner.data.shares import ReadShare, Share, Step
from kernel_backend.runner.data.source import Source, draws_nothing
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.generators import GeneratorDraws
from kernel_backend.runner.determinism.idle import IdleGenerators


class FromTensors(Dataset[Any]):
    """Dataset whose item for a Step holds the step's shares (parts of a batch), cut from whole tensors.

    The result equals that of reading and collating single samples, but takes less time. No random numbers are drawn.
    """

    def __init__(self, tensors: Sequence[Tensor], indices: Tensor | None) -> None:
        self._tensors, self._indices = tensors, indices

    def __getitem__(self, step: Step) -> list[ReadShare]:
        return [self._rows(share.indices, step.digested) if share.samples else ReadShare() for share in step.shares]

    def _rows(self, rows: Tensor, digested: bool) -> ReadShare:
        rows = rows if self._indices is None else self._indices[rows]
        data = [tensor[rows] for tensor in self._tensors]
        return ReadShare(data, see_rows(data)) if digested else ReadShare(data)


class FromSamples(Dataset[Any]):
    """Dataset whose item for a Step holds the step's shares (parts of a batch), read sample by sample.

    Each sample gets random numbers that follow from its number in the training.
    """

    def __init__(self, source: Source, seed: int, tag: str) -> None:
        """Set up the reader of the dataset in `source`.

        `tag` is mixed into the random seeds, so that training and validation samples draw different numbers.
        """
        self._dataset, self._collate = source.dataset, source.collate
        self._draws = GeneratorDraws(source.dataset, seed, tag)
        self._collating = GeneratorDraws(source.collate, seed, f"collate {tag}")
        self._idle = IdleGenerators()
        self._settled = False  # True once the generators held by dataset and collate function are known
        self._quiet = draws_nothing(source.dataset)
        self._together = callable(getattr(source.dataset, "__getitems__", None))

    def __getitem__(self, step: Step) -> list[ReadShare]:
        with one_thread():
            return [self._batch(share, step.digested) if share.samples else ReadShare() for share in step.shares]

    def _batch(self, share: Share, digested: bool) -> ReadShare:
        if self._settled:
            return self._read(share, digested)
        self._look()
        batch = self._read(share, digested)
        self._settled = True
        # A generator created just now drew from its own state, not from this position's seed: read again.
        return self._read(share, digested) if self._look() else batch

    def _look(self) -> bool:
        """Search dataset and collate function for random generators that they hold, to seed them before each sample.

        Return True if others are found than in the last search.
        """
        others = [each.look() for each in ([] if self._quiet else [self._draws]) + [self._collating]]
        self._together = self._together and not self._draws.keeps
        return any(others)

    def _read(self, share: Share, digested: bool) -> ReadShare:
        samples = self._samples(share.position, share.indices.tolist())
        together = digested and self._collate is default_collate and are_rows(samples)  # this path is faster
        seen = see(samples) if digested and not together else SampleDigests()
        self._collating.at(share.position)
        data = self._collate(samples)
        return ReadShare(data, see_rows(data) if together else seen)

    def _samples(self, position: int, indices: list[int]) -> list[Any]:
        if self._quiet:
            return [self._dataset[index] for index in indices]
        found = self._at_once(position, indices) if self._together else None
        if found is not None:
            return found
        return self._one_by_one(position, indices) if self._settled else self._watched(position, indices)

    def _watched(self, position: int, indices: list[int]) -> list[Any]:
        """Return the samples at `indices`, each read with its own random seeds, and note which generators they use.

        `position` is the number of the first sample, counted over all epochs.
        """
        found = []
        for place, index in enumerate(indices, position):
            self._expect(place)
            found.append(self._dataset[index])
            self._idle.drawn()
        return found

    def _one_by_one(self, position: int, indices: list[int]) -> list[Any]:
        """Return the samples at `indices`, each read with seeds of its own for those generators that samples use.

        `position` is the number of the first sample, counted over all epochs. Idle generators, from which no sample has
        drawn so far, are seeded only once, for the first sample, which saves time. If a sample draws from an idle
        generator nevertheless, all samples are read again.
        """
        self._expect(position)
        found, idle = [self._dataset[indices[0]]], self._idle.names
        for place, index in enumerate(indices[1:], position + 1):
            self._draws.at(place, idle)
            found.append(self._dataset[index])
        return self._one_by_one(position, indices) if self._idle.drawn() else found

    def _expect(self, position: int) -> None:
        """Seed all generators for the sample at `position`, and remember what the idle ones would draw next.

        `self._idle.drawn` can then tell whether the sample drew from a generator that was idle so far.
        """
        if self._idle.names:
            self._draws.at(position)
            self._idle.expect()
        self._draws.at(position)

    def _at_once(self, position: int, indices: list[int]) -> list[Any] | None:
        """Read all samples of a share by one call of the dataset's `__getitems__`; None if this drew random numbers.

        A sample's random numbers must not depend on the samples that are read with it. So after such a draw, samples
        are read one by one. `position` is the number of the first sample, over all epochs.
        """
        self._draws.at(position)
        undisturbed = seeds.first_draws()
        self._draws.at(position)
        found: list[Any] = self._dataset.__getitems__(indices)
        self._together = seeds.first_draws() == undisturbed
        return found if self._together else None


def by_index(source: Source, seed: int, tag: str) -> Dataset[Any]:
    """Return a dataset that takes a `Step` as its index and returns the data of the step's shares."""
    tensors, indices = _tensors(source.dataset)
    if tensors is not None and source.collate is default_collate:
        return FromTensors(tensors, indices)
    return FromSamples(source, seed, tag)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread in the `with` block, as loader workers do.

    The number of threads changes the order of summation, and so the bits of a result.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _tensors(dataset: Any) -> tuple[Sequence[Tensor] | None, Tensor | None]:
    """Return the tensors of a TensorDataset, or of nested Subsets of one, and the indices of the samples in them.

    The indices are None if all samples belong to the dataset; both are None for other datasets.
    """
    if type(dataset) is TensorDataset:
        return dataset.tensors, None
    if type(dataset) is Subset:
        tensors, outer = _tensors(dataset.dataset)
        inner = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
        return tensors, inner if outer is None else outer[inner]
    return None, None
