"""Set up loader workers: they return batches and errors, ignore signals and exit when their rank dies."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils.data import Dataset, get_worker_info

from kernel_backend.errors import InvalidDefinition
from kernel_backend.parent_death import die_with
from kernel_backend.runner import opened_files as opened
from kernel_backend.runner.data import arriving
from kernel_backend.runner.data.remote_error import carry

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class LoaderWorkerLost(RuntimeError):
    """Error: a loader worker died before it returned all requested batches."""

    def __init__(self, role: str, pid: int, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(
            f"loader worker {pid} of {role}() {how}. If it was short of memory, --loader-workers with a smaller number "
            "helps; 0 loads in the rank itself"
        )


class WorkerBatch(NamedTuple):
    """Message of a loader worker to its rank: a batch, with the files opened and the time taken to load it.

    Wall and CPU time are in seconds, and 0 unless loading is measured; `waited` are seconds for files that were still
    fetched.
    """

    found: Any
    opened: list[str]
    seconds: float = 0.0
    cpu: float = 0.0
    waited: float = 0.0


class LoadTimes:
    """Sums over all batches loaded so far: their number, the seconds of loading, and the CPU seconds of loading."""

    def __init__(self) -> None:
        self.batches, self.seconds, self.cpu = 0, 0.0, 0.0

    def add(self, seconds: float, cpu: float) -> None:
        """Add a batch, given the seconds and the CPU seconds that it took to load."""
        self.batches += 1
        self.seconds += seconds
        self.cpu += cpu


class GuardedDataset(Dataset[Any]):
    """Dataset that, in a loader worker, returns exceptions of the wrapped dataset together with their source lines.

    The rank raises them again. torch itself would send only their text.
    """

    def __init__(self, dataset: Dataset[Any], role: str, times: LoadTimes | None = None) -> None:
        """Wrap `dataset`, which the user's function `role` (such as `train_data`) returned.

        With `times`, loading is timed: batches loaded in this process are added to `times`, and a worker process sends
        the times along with each batch.
        """
        self._dataset, self._role, self._sent, self._times = dataset, role, False, times

    def __getitem__(self, wanted: Any) -> Any:
        if get_worker_info() is None:
            return self._dataset[wanted] if self._times is None else self._timed(wanted, self._times)
        try:
            begun, cpu = time.monotonic(), time.process_time()
            found = self._dataset[wanted]
            if not self._sent:
                self._try_to_send(found)
            files, waited = opened.heard(), arriving.waited()
            if self._times is not None:
                return WorkerBatch(found, files, time.monotonic() - begun, time.process_time() - cpu, waited)
            return WorkerBatch(found, files, waited=waited) if files or waited else found
        except (Exception, SystemExit) as error:
            return carry(error)

    def _timed(self, wanted: Any, times: LoadTimes) -> Any:
        begun, cpu = time.monotonic(), time.thread_time()  # other threads of the rank compute, too
        found = self._dataset[wanted]
        times.add(time.monotonic() - begun, time.thread_time() - cpu)
        return found

    def _try_to_send(self, found: Any) -> None:
        """Raise InvalidDefinition if `found`, a batch that a worker has loaded, cannot be pickled.

        torch would lose such a batch, and the rank would wait for it forever.
        """
        try:
            pickle.dumps(found)
        except Exception as error:
            raise InvalidDefinition(
                f"a batch of {self._role}() cannot be sent by a loader worker ({error}): make it of tensors, numbers, "
                "strings and what holds them, or load it with --loader-workers 0"
            ) from error
        self._sent = True


class WorkerInit(NamedTuple):
    """Initializer of a worker process: makes it ignore signals and die with its rank."""

    parent: int | None  # None: started by another process than the rank
    users: Callable[[int], None] | None
    listens_to: opened.Keep | None = None  # filter for opened files to report
    waits_for: arriving.Arriving | None = None  # inputs that are on their way

    def __call__(self, number: int) -> None:
        """Initialize worker `number`; called by torch in that worker."""
        if self.parent is not None:
            die_with(self.parent)
        # An engine may signal every process of an attempt: it means the rank, which needs its workers to the end.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if self.listens_to is not None:
            opened.watch(self.listens_to)
        if self.waits_for is not None:
            arriving.begin(self.waits_for)
        if self.users is not None:
            self.users(number)


@contextlib.contextmanager
def signals_waiting() -> Iterator[None]:
    """Delay SIGTERM and SIGINT during the `with` block that starts loader workers.

    Otherwise a signal could kill a worker that has not yet begun to ignore it. The signals are blocked in this process
    and in the workers started in the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def sigchld_kept() -> Iterator[None]:
    """Restore this process's SIGCHLD handler after the `with` block, in which torch replaces it to start workers.

    Torch's handler raises an exception when a worker dies, wherever the rank then is, even in the middle of a
    checkpoint.
    """
    before = signal.getsignal(signal.SIGCHLD)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before)
