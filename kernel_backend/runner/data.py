"""Which samples a step trains on: a function of seed and step, the same at any number of ranks.

The order of an epoch is a permutation that follows from (seed, epoch). A global batch is a slice of the order, and a
rank takes its own slice of the batch. The place in the data is therefore one integer, and going there costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner import seeds


class Source(NamedTuple):
    """What a data role returned, understood."""

    dataset: Any  # __len__ and __getitem__
    collate: Callable[[list[Any]], Any]
    batch_size: int | None = None  # of a user's DataLoader; taken as global
    workers: int = 0
    drop_last: bool = False


class Batch(NamedTuple):
    """A rank's share of a global batch: `data` is None where the share is empty."""

    data: Any
    samples: int  # of this share
    total: int  # of the global batch


def source(value: Any, role: str) -> Source:
    """What a data role returned, as a Source; raises InvalidDefinition that says what to return instead."""
    if isinstance(value, DataLoader):
        return _loader(value, role)
    if isinstance(value, IterableDataset) or not (hasattr(value, "__len__") and hasattr(value, "__getitem__")):
        raise InvalidDefinition(
            f"{role}() returned a {type(value).__name__}, which can only be read from its beginning: return "
            "a dataset with __len__ and __getitem__, a DataLoader over one, or list(...) of your samples"
        )
    if isinstance(value, dict | str | Tensor):
        raise InvalidDefinition(
            f"{role}() returned a {type(value).__name__}: return a dataset of samples, such as "
            "torch.utils.data.TensorDataset(x, y) or a list of (input, target)"
        )
    if len(value) == 0:
        raise InvalidDefinition(f"{role}() returned a {type(value).__name__} without a single sample")
    return Source(value, default_collate)


def _loader(loader: DataLoader[Any], role: str) -> Source:
    inner = source(loader.dataset, role)
    if loader.batch_size is None:
        raise InvalidDefinition(
            f"{role}() returned a DataLoader that makes its own batches (batch_sampler, or batch_size=None): batches "
            "are cut here, the same at any number of slots. Give DataLoader a batch_size instead, or return its dataset"
        )
    return inner._replace(
        collate=loader.collate_fn,
        batch_size=loader.batch_size,
        workers=loader.num_workers,
        drop_last=loader.drop_last,
    )


def order(seed: int, epoch: int, count: int) -> Tensor:
    """The permutation of `count` samples in an epoch, int64."""
    return torch.randperm(count, generator=seeds.generator(seeds.mix(seed, "order", epoch)))


def share(count: int, rank: int, size: int) -> slice:
    """The slice of a batch of `count` that a rank takes: consecutive, and as equal as can be."""
    return slice(rank * count // size, (rank + 1) * count // size)


class Batches:
    """A dataset cut into global batches, of which this rank takes its shares."""

    def __init__(self, source: Source, batch_size: int, seed: int, tag: str, rank: int, size: int) -> None:
        """`tag` keeps draws of training samples (`sample`) and of validation samples apart."""
        self._source, self._seed = source, seed
        self._batch_size = source.batch_size or batch_size
        self._rank, self._size = rank, size
        self._count = len(source.dataset)
        self._fetch = _fetcher(source, seed, tag)
        whole, rest = divmod(self._count, self._batch_size)
        self.per_epoch = whole if source.drop_last and whole else whole + bool(rest)

    def shuffled(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `first` on, in the epoch's own order."""
        return self._batches(order(self._seed, epoch, self._count), epoch * self._count, first)

    def in_order(self) -> Iterator[Batch]:
        """All batches once, unshuffled; each sample draws the same random numbers every time."""
        return self._batches(torch.arange(self._count), 0, 0)

    def _batches(self, order: Tensor, offset: int, first: int) -> Iterator[Batch]:
        shares = self._shares(order, offset, first)
        if self._source.workers == 0:
            return (self._batch(each, self._fetch[each] if each.samples else None) for each in shares)
        return self._by_workers(list(shares))

    def _by_workers(self, shares: list[_Share]) -> Iterator[Batch]:
        full = [each for each in shares if each.samples]
        # A generator of its own: the loader draws from it, and the main one belongs to the steps.
        loader = DataLoader(
            self._fetch,
            sampler=full,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=self._source.workers,
            generator=torch.Generator(),
        )
        fetched = iter(loader)
        for each in shares:
            yield self._batch(each, next(fetched) if each.samples else None)

    def _shares(self, order: Tensor, offset: int, first: int) -> Iterator[_Share]:
        for number in range(first, self.per_epoch):
            start = number * self._batch_size
            batch = order[start : start + self._batch_size]
            mine = share(len(batch), self._rank, self._size)
            yield _Share(offset + start + mine.start, batch[mine], len(batch))

    def _batch(self, share: _Share, data: Any) -> Batch:
        return Batch(data, share.samples, share.total)


class _Share(NamedTuple):
    position: int  # of the first sample, counted over all epochs
    indices: Tensor
    total: int

    @property
    def samples(self) -> int:
        return len(self.indices)


def _as_is(batch: Any) -> Any:
    return batch


def _fetcher(source: Source, seed: int, tag: str) -> Dataset[Any]:
    tensors, indices = _tensors(source.dataset)
    if tensors is not None and source.collate is default_collate:
        return _FromTensors(tensors, indices)
    return _FromSamples(source, seed, tag)


def _tensors(dataset: Any) -> tuple[Sequence[Tensor] | None, Tensor | None]:
    """The tensors behind a TensorDataset or Subsets of one, and the indices into them; (None, None) otherwise."""
    if type(dataset) is TensorDataset:
        return dataset.tensors, None
    if type(dataset) is Subset:
        tensors, outer = _tensors(dataset.dataset)
        inner = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
        return tensors, inner if outer is None else outer[inner]
    return None, None


class _FromTensors(Dataset[Any]):
    """Rows of tensors: nothing is drawn, and indexing gives the bits of a collated list of samples."""

    def __init__(self, tensors: Sequence[Tensor], indices: Tensor | None) -> None:
        self._tensors, self._indices = tensors, indices

    def __getitem__(self, share: _Share) -> list[Tensor]:
        rows = share.indices if self._indices is None else self._indices[share.indices]
        return [tensor[rows] for tensor in self._tensors]


class _FromSamples(Dataset[Any]):
    """Samples one by one, each with random numbers of its own: by its position, whoever loads it."""

    def __init__(self, source: Source, seed: int, tag: str) -> None:
        self._dataset, self._collate = source.dataset, source.collate
        self._seed, self._tag = seed, tag

    def __getitem__(self, share: _Share) -> Any:
        samples = list(self._samples(share))
        seeds.reseed(seeds.mix(self._seed, "collate", self._tag, share.position))
        return self._collate(samples)

    def _samples(self, share: _Share) -> Iterator[Any]:
        for position, index in enumerate(share.indices.tolist(), share.position):
            seeds.reseed(seeds.mix(self._seed, self._tag, position))
            yield self._dataset[index]
