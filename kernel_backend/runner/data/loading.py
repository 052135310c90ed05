"""Read batches in this process, or in worker processes ahead of time, with bit-identical results."""

from __future__ import annotations

import atexit
import itertools
import os
import weakref
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import Dataset

from kernel_backend.model.facts import LoaderSetting
from kernel_backend.runner.data.auto_workers import AutoWorkers, WorkerTuner
from kernel_backend.runner.data.pool import END, Pool
from kernel_backend.runner.data.samples import FromTensors
from kernel_backend.runner.data.source import Source
from kernel_backend.runner.timing.clock import CLOCK

Wanted = TypeVar("Wanted")


class Loading:
    """Reader that returns requested items of a dataset in order, loaded in this process or in worker processes.

    The workers live until `close`. With `--loader-workers auto` their number may change between two items of training
    data: a second pool of workers then loads the items that follow, while the last items of the first pool are used.
    """

    def __init__(
        self, dataset: Dataset[Any], source: Source, workers: int | AutoWorkers | None, device: torch.device
    ) -> None:
        """Set up the reader of `dataset`, whose loader options are in `source`.

        `workers` is the number of worker processes; with None, `source` decides it, and with an AutoWorkers it is
        tuned. If `device` is a CUDA device, batches from workers are in pinned memory.
        """
        auto = workers if isinstance(workers, AutoWorkers) and not source.stream else None
        self._dataset, self._source, self._cuda = dataset, source, device.type == "cuda"
        count = source.workers(workers if isinstance(workers, int) else None)
        self._usual = LoaderSetting(workers=count, prefetch=source.options.prefetch or 2)
        self._auto = auto
        self._tuner = WorkerTuner(auto, source, self._usual) if auto is not None else None
        self._begin = auto.begin if auto is not None else None  # of the first tuned reading
        # The newest one is the last; those before it return what they have requested.
        self._pools = [self._pool(self._usual)]
        self._reading: Generator[Any] | None = None

    @property
    def workers(self) -> int:
        """Return the number of worker processes; while it changes, the number in the new pool."""
        return self._pools[-1].setting.workers

    @property
    def disturbs(self) -> bool:
        """Return True if reading samples may change the states of this process's random generators.

        This is so without loader workers, unless the samples are tensors in memory.
        """
        return self._usual.workers == 0 and not isinstance(self._dataset, FromTensors)

    def read(self, wanted: Iterator[Wanted], tuned: bool = False) -> Iterator[tuple[Wanted, Any]]:
        """Yield each index in `wanted` with the dataset's item at that index, in order; any earlier iteration ends.

        With `tuned`, the number of workers may change during the iteration.
        """
        if self._reading is not None:
            self._reading.close()
        if tuned and self._begin is not None:
            self._pools, self._begin = [self._pool(self._begin)], None
        self._reading = self._read(wanted, self._tuner if tuned else None)
        return self._reading

    def close(self) -> None:
        """Stop the worker processes that read data."""
        if self._reading is not None:
            self._reading.close()
        self._reading = None
        for pool in self._pools:
            pool.close()

    def _read(self, wanted: Iterator[Wanted], tuner: WorkerTuner | None) -> Generator[tuple[Wanted, Any]]:
        _open.add(self)
        while len(self._pools) > 1:  # an earlier iteration was left while it changed from one to the other
            self._pools.pop(0).close()
        self._pools[0].begin(wanted)
        while True:
            pool = self._pools[0]
            try:
                request, found = pool.next()
            except Exception as error:
                if tuner is None or pool.setting == self._usual:
                    raise
                tuner.give_up(pool.setting, error)
                wanted = self._fall_back(wanted)
                continue
            if request is END and len(self._pools) == 1:
                return
            if request is END:
                self._pools.pop(0).close()
                continue
            yield request, found
            if tuner is not None and len(self._pools) == 1:
                self._tune(tuner, wanted)

    def _tune(self, tuner: WorkerTuner, wanted: Iterator[Any]) -> None:
        pool = self._pools[-1]
        setting = tuner.look(pool.setting, pool.times, pool.processes)
        if setting is None:
            return
        pool.no_more()
        self._pools.append(self._pool(setting))
        self._pools[-1].begin(wanted)
        CLOCK.used("indexed", setting.workers)

    def _fall_back(self, wanted: Iterator[Any]) -> Iterator[Any]:
        """Return to the untuned loader setting, after loading with a tuned one has failed.

        Return all requests that must still be read: first those whose data has not arrived, then those in `wanted`.
        """
        missing = [request for pool in self._pools for request in pool.pending]
        for pool in self._pools:
            pool.close()
        self._pools = [self._pool(self._usual)]
        wanted = itertools.chain(missing, wanted)
        self._pools[0].begin(wanted)
        CLOCK.used("indexed", self._usual.workers)
        return wanted

    def _pool(self, setting: LoaderSetting) -> Pool:
        options = self._source.options
        if self._auto is not None and setting != self._usual:  # processes that hang must not hang the training
            options = options._replace(timeout=options.timeout or self._auto.patience)
        # Data from a worker is in host memory; data read here may be on the device.
        pin = self._cuda and (setting.workers > 0 or options.pin)
        return Pool(self._dataset, self._source.role, options, setting, pin, timed=self._auto is not None)


_open: weakref.WeakSet[Loading] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open.clear)  # its workers are not those of a process that the user's code forks


@atexit.register
def _close_all() -> None:
    """Stop all workers when the interpreter exits.

    Workers ignore SIGTERM, so that the exit would otherwise wait for them forever.
    """
    for each in list(_open):
        each.close()
