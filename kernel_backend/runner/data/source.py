"""Interpret what the user's `train_data` or `validation_data` returned: a dataset or a stream, and how to batch it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data.columns import Columns, by_rows, has_rows
from kernel_backend.runner.data.user_sampler import own_sampler

AUTO_WORKERS = min(2, os.cpu_count() or 1)


class LoaderOptions(NamedTuple):
    """Options of the user's DataLoader that affect only the speed of reading."""

    workers: int | None = None  # None: no DataLoader was given
    prefetch: int | None = None  # None: torch's default
    start: Callable[[int], None] | None = None  # worker_init_fn
    pin: bool = False
    timeout: float = 0
    persistent: bool = True
    context: Any = "fork"  # start method or context of worker processes


class Source(NamedTuple):
    """Interpreted result of a user's data function: dataset, collate function, batch size and loader options."""

    dataset: Any  # with __len__ and __getitem__; with __iter__ if it is a stream
    collate: Callable[[list[Any]], Any]
    role: str  # name of the function that returned it
    stream: bool = False
    batch_size: int | None = None  # of a user's DataLoader; used as the global batch size
    drop_last: bool = False
    sampler: Any = None  # of a user's DataLoader, unless it is a plain permutation
    options: LoaderOptions = LoaderOptions()

    @property
    def length(self) -> int | None:
        """Return the number of samples; None for a stream without a length."""
        try:
            return len(self.dataset)
        except (TypeError, NotImplementedError):
            return None

    def workers(self, asked: int | None) -> int:
        """Return the number of loader processes: the given one, or for None the `num_workers` of the user's loader.

        Without both, it is 0 for tensors in memory, else `AUTO_WORKERS`. A stream is read by at most one process, as
        its samples come in a single order.
        """
        wanted = asked if asked is not None else self.options.workers
        if wanted is None:
            in_memory = draws_nothing(self.dataset) and self.collate is default_collate
            wanted = 0 if in_memory else AUTO_WORKERS
        return min(wanted, 1) if self.stream else wanted


def source(value: Any, role: str) -> Source:
    """Return the Source for the value that the user's function `role` (such as `train_data`) returned.

    Raises InvalidDefinition, with advice on what to return, if the value is not data.
    """
    if isinstance(value, DataLoader):
        return _of_loader(value, role)
    value = by_rows(value)
    indexed = hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, IterableDataset)
    single = isinstance(value, Tensor) and not has_rows(value)
    if isinstance(value, dict | str | bytes) or single or not (indexed or isinstance(value, Iterable)):
        raise InvalidDefinition(
            f"{role}() returned a {type(value).__name__}: return a dataset of samples, such as "
            "torch.utils.data.TensorDataset(x, y), tensors (x, y) of as many rows, a list of (input, target), or an "
            "iterable of them"
        )
    found = Source(value, default_collate, role, stream=not indexed)
    if found.length == 0:
        raise InvalidDefinition(f"{role}() returned a {type(value).__name__} without a single sample")
    return found


def draws_nothing(dataset: Any) -> bool:
    """Return True if reading the dataset is known to draw no random numbers, as its samples are tensors in memory."""
    if type(dataset) is Subset:
        return draws_nothing(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(draws_nothing(each) for each in dataset.datasets)
    return has_rows(dataset) or type(dataset) in (TensorDataset, Columns, list, tuple)


def _of_loader(loader: DataLoader[Any], role: str) -> Source:
    inner = source(loader.dataset, role)
    if loader.batch_size is None:
        raise InvalidDefinition(
            f"{role}() returned a DataLoader that makes its own batches (batch_sampler, or batch_size=None): batches "
            "are cut here, the same at any number of slots. Give DataLoader a batch_size instead, or return its dataset"
        )
    return inner._replace(
        collate=loader.collate_fn,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        sampler=None if inner.stream else own_sampler(loader.sampler, inner.length),
        options=LoaderOptions(
            workers=loader.num_workers,
            prefetch=loader.prefetch_factor,
            start=loader.worker_init_fn,
            pin=loader.pin_memory,
            timeout=loader.timeout,
            persistent=loader.persistent_workers,
            context=loader.multiprocessing_context or "fork",
        ),
    )
