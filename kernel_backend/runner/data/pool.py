"""Read requested items in this process, or in a pool of worker processes that load them in advance."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from kernel_backend.model.facts import LoaderSetting
from kernel_backend.runner import opened_files
from kernel_backend.runner.data import arriving
from kernel_backend.runner.data.loader_workers import (
    GuardedDataset,
    LoaderWorkerLost,
    LoadTimes,
    WorkerBatch,
    WorkerInit,
    sigchld_kept,
    signals_waiting,
)
from kernel_backend.runner.data.remote_error import RemoteError
from kernel_backend.runner.data.source import LoaderOptions
from kernel_backend.runner.timing.clock import CLOCK

DYING_S = 10.0  # on a busy machine, or while writing a core dump
END: Any = object()


class Pool:
    """Reader of a dataset with a fixed number of worker processes, which live until `close`; it may have none.

    Without workers it reads in this process. Use it in a thread that lives as long as the process: workers die with the
    thread that started them.
    """

    def __init__(
        self, dataset: Dataset[Any], role: str, options: LoaderOptions, setting: LoaderSetting, pin: bool, timed: bool
    ) -> None:
        """Set up the reader of `dataset`, which the user's function `role` (such as `train_data`) returned.

        `setting` has the number of workers and of batches that each loads in advance. With `pin`, batches are put into
        pinned memory. With `timed`, the attribute `times` sums the seconds that its batches took to load.
        """
        self.setting = setting
        self.times = LoadTimes()
        self._role, self._options, self._pin, self._tuned = role, options, pin, timed
        self._dataset = GuardedDataset(dataset, role, self.times if timed else None)
        self._asked = _Requested()
        self._loader: DataLoader[Any] | None = None
        self._fetched: Iterator[Any] | None = None  # torch's own iterator, which owns the workers
        self._processes: set[Any] = set()

    @property
    def _is_here(self) -> bool:
        return self.setting.workers == 0 and not self._pin

    @property
    def processes(self) -> list[int]:
        """Return the process ids of the workers."""
        return [each.pid for each in self._processes]

    def begin(self, wanted: Iterator[Any]) -> None:
        """Begin to read the items at the indices in `wanted`, and end any earlier reading; workers load at once."""
        self._asked.begin(wanted)
        if not self._is_here:
            self._start()

    def next(self) -> tuple[Any, Any]:
        """Return the next requested index with its item, or (END, None) after the last one."""
        if self._is_here:
            request = self._asked.take()
            if request is END:
                return END, None
            found = self._dataset[request]
            self._asked.arrived()
            return request, found
        found = self._received()
        return (END, None) if found is END else (self._asked.arrived(), found)

    def no_more(self) -> None:
        """Take no further requests from the iterator given to `begin`; `next` still returns those already taken."""
        self._asked.ended = True

    @property
    def pending(self) -> list[Any]:
        """Return the requests whose data has not arrived yet, oldest first."""
        return list(self._asked.pending)

    def close(self) -> None:
        """Stop the worker processes."""
        _end(self._fetched)
        for process in self._processes:
            process.kill()  # a worker stuck in user code ignores weaker signals
            process.join()
        self._loader = self._fetched = None
        self._processes = set()

    def _received(self) -> Any:
        assert self._fetched is not None
        self._see_that_all_live(None)
        began = time.monotonic()
        try:
            found = next(self._fetched, END)
        except Exception as error:  # unpickling a worker's message can raise anything
            self._await_the_dying()
            self._see_that_all_live(error)
            raise
        if isinstance(found, RemoteError):
            raise found.restored()
        if isinstance(found, WorkerBatch):
            opened_files.add(found.opened)
            self.times.add(found.seconds, found.cpu)
            CLOCK.reassign(min(found.waited, time.monotonic() - began), "data", "input")
            return found.found
        return found

    def _await_the_dying(self) -> None:
        """Wait up to `DYING_S` seconds for a worker to exit, after an error in reading its message.

        A worker that is dying closes its pipes first; only after its exit is its exit code known.
        """
        ended = multiprocessing.connection.wait([process.sentinel for process in self._processes], timeout=DYING_S)
        for process in self._processes:
            if process.sentinel in ended:
                process.join(DYING_S)

    def _see_that_all_live(self, cause: Exception | None) -> None:
        for process in self._processes:
            if process.exitcode is not None:
                raise LoaderWorkerLost(self._role, process.pid, process.exitcode) from cause

    def _start(self) -> None:
        if not self._options.persistent:
            _end(self._fetched)
        others = set(multiprocessing.active_children()) - self._processes
        with signals_waiting(), sigchld_kept(), warnings.catch_warnings():
            if self._tuned:  # torch warns of more workers than cores, which suit a loader that waits for a disk
                warnings.filterwarnings("ignore", "This DataLoader will create")
            if self._loader is None:
                self._loader = self._made()
            self._fetched = iter(self._loader)
        self._processes = set(multiprocessing.active_children()) - others

    def _made(self) -> DataLoader[Any]:
        options = self._options
        by_workers: dict[str, Any] = {
            "prefetch_factor": self.setting.prefetch,
            "timeout": options.timeout,
            "persistent_workers": options.persistent,
            "worker_init_fn": WorkerInit(_parent(options), options.start, opened_files.watching(), arriving.current()),
            "multiprocessing_context": options.context,
        }
        return DataLoader(
            self._dataset,
            sampler=self._asked,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=self.setting.workers,
            pin_memory=self._pin,
            generator=torch.Generator(),  # torch draws from it; the global one is reserved for the steps
            **(by_workers if self.setting.workers else {}),
        )


class _Requested:
    """Sampler that passes requests on to torch's DataLoader, and keeps those whose data has not arrived yet."""

    def begin(self, wanted: Iterator[Any]) -> None:
        self._wanted, self.pending, self.ended = wanted, deque[Any](), False

    def __iter__(self) -> Iterator[Any]:
        while (each := self.take()) is not END:
            yield each

    def take(self) -> Any:
        """Return the next request; END after the last one, or once `ended` is set."""
        each = END if self.ended else next(self._wanted, END)
        if each is not END:
            self.pending.append(each)
        return each

    def arrived(self) -> Any:
        """Remove the oldest pending request, whose data has just arrived, and return it."""
        return self.pending.popleft()


def _parent(options: LoaderOptions) -> int | None:
    context = options.context
    method = context if isinstance(context, str) else context.get_start_method()
    return None if method == "forkserver" else os.getpid()


def _end(fetched: Iterator[Any] | None) -> None:
    """Stop the workers of torch's iterator `fetched` as soon as they have loaded their current item."""
    shut_down = getattr(fetched, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _as_is(batch: Any) -> Any:
    return batch
