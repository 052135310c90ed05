"""Batches, read here or ahead of time by worker processes: the same bits either way."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.connection
import os
import weakref
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from kernel_backend.runner import opened_files
from kernel_backend.runner.data.loader_workers import (
    GuardedDataset,
    LoaderWorkerLost,
    WorkerBatch,
    WorkerInit,
    sigchld_kept,
    signals_waiting,
)
from kernel_backend.runner.data.remote_error import RemoteError
from kernel_backend.runner.data.samples import FromTensors
from kernel_backend.runner.data.source import LoaderOptions, Source

DYING_S = 10.0  # on a machine that is busy enough, or writes a core

Wanted = TypeVar("Wanted")


class Loading:
    """Reads what is wanted from a dataset, in order. Worker processes live until `close`.

    Use it in the thread that lives as long as the process: workers die with the thread that has started them.
    """

    def __init__(self, dataset: Dataset[Any], source: Source, workers: int | None, device: torch.device) -> None:
        """`workers` as asked for: None leaves the number to the source."""
        self._dataset, self._role, self._wishes = dataset, source.role, source.wishes
        self.workers = source.workers(workers)
        # What a worker sends is in host memory; what the dataset itself gives may be on the device.
        self._pin = device.type == "cuda" and (self.workers > 0 or source.wishes.pin)
        self._asked = _Requested()
        self._loader: DataLoader[Any] | None = None
        self._fetched: Iterator[Any] | None = None  # torch's own iterator, which has the workers
        self._reading: Generator[Any] | None = None
        self._processes: set[Any] = set()

    @property
    def disturbs(self) -> bool:
        """Whether reading seeds the random generators of this process."""
        return self.workers == 0 and not isinstance(self._dataset, FromTensors)

    def read(self, wanted: Iterator[Wanted]) -> Iterator[tuple[Wanted, Any]]:
        """Each of what is wanted, and what the dataset has for it. An earlier reading is over."""
        if self._reading is not None:
            self._reading.close()
        here = self.workers == 0 and not self._pin
        self._reading = self._here(wanted) if here else self._ahead(wanted)
        return self._reading

    def close(self) -> None:
        """End the workers."""
        if self._reading is not None:
            self._reading.close()
        _end(self._fetched)
        for process in self._processes:
            process.kill()  # one that is lost in the user's code ignores anything less
            process.join()
        self._loader = self._fetched = self._reading = None
        self._processes = set()

    def _here(self, wanted: Iterator[Wanted]) -> Generator[tuple[Wanted, Any]]:
        for each in wanted:
            yield each, self._dataset[each]

    def _ahead(self, wanted: Iterator[Wanted]) -> Generator[tuple[Wanted, Any]]:
        self._asked.begin(wanted)
        fetched = self._begin()
        while True:
            self._see_that_all_live(None)
            try:
                found = next(fetched)
            except StopIteration:
                return
            except Exception as error:  # of many kinds: what a worker has sent is fetched from it
                self._await_the_dying()
                self._see_that_all_live(error)
                raise
            if isinstance(found, RemoteError):
                raise found.restored()
            if isinstance(found, WorkerBatch):
                opened_files.add(found.opened)
                found = found.found
            yield self._asked.next(), found

    def _await_the_dying(self) -> None:
        """Give a worker whose pipes are cut some time to be dead: they are closed before it can be reaped."""
        ended = multiprocessing.connection.wait([process.sentinel for process in self._processes], timeout=DYING_S)
        for process in self._processes:
            if process.sentinel in ended:
                process.join(DYING_S)

    def _see_that_all_live(self, cause: Exception | None) -> None:
        for process in self._processes:
            if process.exitcode is not None:
                raise LoaderWorkerLost(self._role, process.pid, process.exitcode) from cause

    def _begin(self) -> Iterator[Any]:
        if self._loader is None:
            _open.add(self)
            self._loader = self._made()
        if not self._wishes.persistent:
            _end(self._fetched)
        others = set(multiprocessing.active_children()) - self._processes
        with signals_waiting(), sigchld_kept():
            self._fetched = iter(self._loader)
        self._processes = set(multiprocessing.active_children()) - others
        return self._fetched

    def _made(self) -> DataLoader[Any]:
        wishes = self._wishes
        by_workers: dict[str, Any] = {
            "prefetch_factor": wishes.prefetch,
            "timeout": wishes.timeout,
            "persistent_workers": wishes.persistent,
            "worker_init_fn": WorkerInit(_parent(wishes), wishes.start, opened_files.watching()),
            "multiprocessing_context": wishes.context,
        }
        return DataLoader(
            GuardedDataset(self._dataset, self._role),
            sampler=self._asked,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=self.workers,
            pin_memory=self._pin,
            generator=torch.Generator(),  # it is drawn from, and the main one belongs to the steps
            **(by_workers if self.workers else {}),
        )


class _Requested:
    """What torch's loader is to fetch next, and what it has been asked for and has not brought yet."""

    def begin(self, wanted: Iterator[Any]) -> None:
        self._wanted, self._pending = wanted, deque[Any]()

    def __iter__(self) -> Iterator[Any]:
        for each in self._wanted:
            self._pending.append(each)
            yield each

    def next(self) -> Any:
        return self._pending.popleft()


def _parent(wishes: LoaderOptions) -> int | None:
    context = wishes.context
    method = context if isinstance(context, str) else context.get_start_method()
    return None if method == "forkserver" else os.getpid()


def _end(fetched: Iterator[Any] | None) -> None:
    """Have the workers of torch's iterator end as soon as they have fetched what they are at."""
    shut_down = getattr(fetched, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _as_is(batch: Any) -> Any:
    return batch


_open: weakref.WeakSet[Loading] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Python would wait for ever for workers that ignore its SIGTERM."""
    for each in list(_open):
        each.close()
