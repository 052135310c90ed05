"""Read a user's DataLoader for Lightning: its batches are divided among the ranks, in an order derived from the seed.

Epoch and batch number determine what is read, so that a training resumes anywhere without reading earlier batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import SequentialSampler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch, Batches, source
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.random_states import RandomStates

Place = Callable[[], tuple[int, int]]  # returns the epoch, and the number of batches trained in it
Taken = Callable[[Batch], None]
Padding = Callable[[], Any]  # returns data for a rank whose share of a batch is empty


class Loader:
    """Iterable that Lightning uses in place of a user's DataLoader; yields this rank's share of each global batch."""

    def __init__(self, batches: Batches, padding: Padding, taken: Taken) -> None:
        """Set up the loader. `padding` returns the data that Lightning gets when this rank's share of a batch is empty.

        `taken` is called with each share before Lightning uses it.
        """
        self.batches, self._padding, self._taken = batches, padding, taken

    def __len__(self) -> int:
        found = self.batches.per_epoch
        if found is None:
            raise TypeError("a stream has no length before its first pass")
        return found

    def _given(self, shares: Iterator[list[Batch]]) -> Iterator[Any]:
        for (share,) in shares:
            # Every rank computes in every step; results of an empty share are discarded.
            data = share.data if share.samples else self._padding()
            self._taken(share)
            yield data


class TrainingLoader(Loader):
    """Loader of the training batches of an epoch, from the batch on at which the training continues."""

    def __init__(self, batches: Batches, padding: Padding, taken: Taken, place: Place) -> None:
        """Set up the loader. `place` returns the current epoch and the number of batches already trained in it.

        It is called when the first batch of a pass is needed.
        """
        super().__init__(batches, padding, taken)
        self._place = place

    def __iter__(self) -> Iterator[Any]:
        epoch, done = self._place()
        start, stop = epoch * len(self), (epoch + 1) * len(self)
        yield from self._given(self.batches.steps(start + done, stop))


class ValidationLoader(Loader):
    """Loader of the validation batches, in the DataLoader's order."""

    def __iter__(self) -> Iterator[Any]:
        yield from self._given(self.batches.in_order())


def made_of(loader: Any, role: str, training: bool) -> Source:
    """Return the data of the DataLoader that `role` returned; raise InvalidDefinition if ranks cannot share it.

    A training DataLoader that does not shuffle keeps its order, as in Lightning.
    """
    found = source(loader, role)
    if found.stream:
        raise InvalidDefinition(
            f"{role}() returned an IterableDataset, which can only be read from its beginning, one batch ahead of the "
            "steps: return a DataLoader of a dataset with __len__ and __getitem__"
        )
    sampler = getattr(loader, "sampler", None)
    return found._replace(sampler=sampler) if training and type(sampler) is SequentialSampler else found


def batches_of(rank: RankContext, data: Source, mine: range, count: int, training: bool) -> Batches:
    """Return `data` in batches, each divided into `count` shares, of which this rank computes those in `mine`."""
    config = rank.config
    tag, workers = "sample" if training else "validation", rank.loader_workers
    size, seed, limit = config.batch_size, config.seed, rank.limit_guarantee
    return Batches(data, size, seed, tag, mine, count, workers, rank.device, rank.note, digested=training, limit=limit)


def padding_of(data: Source, seed: int) -> Any:
    """Return a batch of two samples, which a rank uses in place of an empty share; its results are discarded.

    The samples are read with fixed random numbers, so that the training's own random states do not change.
    """
    with RandomStates().aside():
        seeds.reseed(seeds.mix(seed, "padding"))
        return data.collate([data.dataset[place % len(data.dataset)] for place in range(2)])
