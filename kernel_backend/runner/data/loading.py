"""Read batches in this process, or ahead of time in worker processes, with bit-identical results."""

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

DYING_S = 10.0  # on a busy machine, or while writing a core dump

Wanted = TypeVar("Wanted")


class Loading:
    """Reader that fetches requested items from a dataset in order; worker processes live until `close`.

    Use it in a thread that lives as long as the process: workers die with the thread that started them.
    """

    def __init__(self, dataset: Dataset[Any], source: Source, workers: int | None, device: torch.device) -> None:
        """Set up the reader; `workers` None leaves the number to the source."""
        self._dataset, self._role, self._options = dataset, source.role, source.options
        self.workers = source.workers(workers)
        # Data from a worker is in host memory; data read here may be on the device.
        self._pin = device.type == "cuda" and (self.workers > 0 or source.options.pin)
        self._asked = _Requested()
        self._loader: DataLoader[Any] | None = None
        self._fetched: Iterator[Any] | None = None  # torch's own iterator, which owns the workers
        self._reading: Generator[Any] | None = None
        self._processes: set[Any] = set()

    @property
    def disturbs(self) -> bool:
        """Return True if reading samples reseeds this process's random generators, as it may without workers."""
        return self.workers == 0 and not isinstance(self._dataset, FromTensors)

    def read(self, wanted: Iterator[Wanted]) -> Iterator[tuple[Wanted, Any]]:
        """Iterate over pairs of a request and its data; end any earlier iteration."""
        if self._reading is not None:
            self._reading.close()
        here = self.workers == 0 and not self._pin
        self._reading = self._here(wanted) if here else self._ahead(wanted)
        return self._reading

    def close(self) -> None:
        """Stop the worker processes that read data."""
        if self._reading is not None:
            self._reading.close()
        _end(self._fetched)
        for process in self._processes:
            process.kill()  # a worker stuck in user code ignores weaker signals
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
            except Exception as error:  # unpickling a worker's message can raise anything
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
        """Wait until a worker that has closed its pipes has exited, since its exit code is known only then."""
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
        if not self._options.persistent:
            _end(self._fetched)
        others = set(multiprocessing.active_children()) - self._processes
        with signals_waiting(), sigchld_kept():
            self._fetched = iter(self._loader)
        self._processes = set(multiprocessing.active_children()) - others
        return self._fetched

    def _made(self) -> DataLoader[Any]:
        options = self._options
        by_workers: dict[str, Any] = {
            "prefetch_factor": options.prefetch,
            "timeout": options.timeout,
            "persistent_workers": options.persistent,
            "worker_init_fn": WorkerInit(_parent(options), options.start, opened_files.watching()),
            "multiprocessing_context": options.context,
        }
        return DataLoader(
            GuardedDataset(self._dataset, self._role),
            sampler=self._asked,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=self.workers,
            pin_memory=self._pin,
            generator=torch.Generator(),  # torch draws from it; the global one is reserved for the steps
            **(by_workers if self.workers else {}),
        )


class _Requested:
    """Sampler that passes requests to torch's DataLoader, and keeps those whose data has not arrived yet."""

    def begin(self, wanted: Iterator[Any]) -> None:
        self._wanted, self._pending = wanted, deque[Any]()

    def __iter__(self) -> Iterator[Any]:
        for each in self._wanted:
            self._pending.append(each)
            yield each

    def next(self) -> Any:
        return self._pending.popleft()


def _parent(options: LoaderOptions) -> int | None:
    context = options.context
    method = context if isinstance(context, str) else context.get_start_method()
    return None if method == "forkserver" else os.getpid()


def _end(fetched: Iterator[Any] | None) -> None:
    """Stop the workers of torch's iterator as soon as they finish their current fetch."""
    shut_down = getattr(fetched, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _as_is(batch: Any) -> Any:
    return batch


_open: weakref.WeakSet[Loading] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stop all workers at exit: Python would wait forever for workers that ignore its SIGTERM."""
    for each in list(_open):
        each.close()
