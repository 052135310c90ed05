"""Read a Hugging Face Trainer's data: this rank's shares of the batches, from where the training resumes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch, Batches, source
from kernel_backend.runner.determinism.random_states import RandomStates


class Loader:
    """Iterable over this rank's shares of a DataLoader's batches.

    The DataLoader's batch size is the size of one rank's share, as under torchrun.
    """

    def __init__(self, rank: RankContext, loader: DataLoader[Any], *, training: bool, seed: int) -> None:
        """Set up the batches, in an order derived from `seed`; raise InvalidDefinition if the data cannot be shared."""
        role = "train_dataset" if training else "eval_dataset"
        found = source(loader, role)
        if found.stream:
            raise InvalidDefinition(
                f"{role} is an IterableDataset, which can only be read from its beginning, ahead of the steps: give a "
                "dataset with __len__ and __getitem__"
            )
        if not training or type(loader.sampler) is SequentialSampler:
            found = found._replace(sampler=loader.sampler)
        elif type(loader.sampler) is RandomSampler:
            # The order that the Trainer would use by itself.
            found = found._replace(sampler=SeedableRandomSampler(loader.dataset, data_seed=seed))
        assert found.batch_size is not None
        ranks, config = rank.ranks, rank.config
        self.dataset, self.batch_size, self.sampler = loader.dataset, found.batch_size, loader.sampler
        self._training = training
        self._batches = Batches(
            found._replace(batch_size=None),
            found.batch_size * ranks.size,
            config.seed,
            "sample" if training else "validation",
            range(ranks.rank, ranks.rank + 1),
            ranks.size,
            rank.loader_workers,
            rank.device,
            rank.note,
            digested=training,
            filled=True,
            limit=rank.limit_guarantee,
            whole=not training,  # each share is a batch of one slot's, so that no loss depends on the number of slots
        )
        self.epoch, self.taken = 0, 0  # the start of the next pass
        self._read: deque[Batch] = deque()  # batches that were yielded but not trained yet
        self.current: Batch | None = None  # the batch that is trained or evaluated

    def __len__(self) -> int:
        assert self._batches.per_epoch is not None
        return self._batches.per_epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch that the next pass over the data belongs to."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        # Draw a seed as each pass of torch's DataLoader does, so that dropout equals that without Daylight.
        torch.empty((), dtype=torch.int64).random_()
        self._read.clear()
        batches = self._batches
        if self._training:
            first = self.epoch * len(self)
            steps = batches.steps(first + self.taken, first + len(self))
            self.taken = 0
            steps = RandomStates().isolated(steps) if batches.disturbs else steps
        else:
            steps = batches.in_order()
        for (batch,) in steps:
            if self._training:
                self._read.append(batch)
            else:
                self.current = batch
            yield batch.data

    def begin_batch(self) -> Batch:
        """Return the next batch that is trained; from now on it is the current batch."""
        self.current = self._read.popleft()
        return self.current

    @property
    def own(self) -> int:
        """Return the number of samples of the current batch in this rank's share.

        It is 0 if the share only repeats samples of other ranks, as the batch has too few.
        """
        assert self.current is not None
        return self._batches.own_samples(self.current.total)

    @property
    def own_rows(self) -> slice:
        """Return which rows of a value of this rank's current batch are those of samples of its own.

        A value may have more: the Trainer repeats a validation batch's loss as often as a full batch has samples.
        """
        own = self.own
        return slice(None if own == self.batch_size else own)

    def own_of(self, data: list[Any]) -> list[Any]:
        """Return those batches of `data` in which this rank has samples of its own.

        `data` are the batches that the loader has yielded last. A rank with an empty share repeats samples of another
        rank.
        """
        newest = list(self._read)[-len(data) :]
        return [
            each
            for each, batch in zip(data, newest, strict=True)
            if batch.samples and self._batches.own_samples(batch.total)
        ]

    def close(self) -> None:
        """Stop the loader processes."""
        self._batches.close()
