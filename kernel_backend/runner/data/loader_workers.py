"""What a loader worker is to its rank: it brings batches and errors, leaves signals to it, and dies with it."""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils.data import Dataset, get_worker_info

from kernel_backend.errors import InvalidDefinition
from kernel_backend.parent_death import die_with
from kernel_backend.runner import opened_files as opened
from kernel_backend.runner.data.remote_error import carry

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class LoaderWorkerLost(RuntimeError):
    """A worker process is gone, and what it was to load with it."""

    def __init__(self, role: str, pid: int, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(
            f"loader worker {pid} of {role}() {how}. If it was short of memory, --loader-workers with a smaller number "
            "helps; 0 loads in the rank itself"
        )


class WorkerBatch(NamedTuple):
    """What a worker sends while files are listened to: what was read, and what it has opened for that."""

    found: Any
    opened: list[str]


class GuardedDataset(Dataset[Any]):
    """The dataset; of an error in a worker the lines come along, which torch would make a text of."""

    def __init__(self, dataset: Dataset[Any], role: str) -> None:
        self._dataset, self._role, self._sent = dataset, role, False

    def __getitem__(self, wanted: Any) -> Any:
        if get_worker_info() is None:
            return self._dataset[wanted]
        try:
            found = self._dataset[wanted]
            if not self._sent:
                self._try_to_send(found)
            files = opened.heard()
            return WorkerBatch(found, files) if files else found
        except (Exception, SystemExit) as error:
            return carry(error)

    def _try_to_send(self, found: Any) -> None:
        """See that it can travel: torch would lose one that cannot, and its rank would wait for ever."""
        try:
            pickle.dumps(found)
        except Exception as error:
            raise InvalidDefinition(
                f"a batch of {self._role}() cannot be sent by a loader worker ({error}): make it of tensors, numbers, "
                "strings and what holds them, or load it with --loader-workers 0"
            ) from error
        self._sent = True


class WorkerInit(NamedTuple):
    """What a worker does first: it lives no longer than its rank, and leaves signals to it."""

    parent: int | None  # None: somebody else has started it
    users: Callable[[int], None] | None
    listens_to: opened.Keep | None = None  # which files it is to tell of

    def __call__(self, number: int) -> None:
        """Called by torch in worker `number`."""
        if self.parent is not None:
            die_with(self.parent)
        # An engine may signal every process of an attempt: it means the rank, which needs its workers to the end.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if self.listens_to is not None:
            opened.watch(self.listens_to)
        if self.users is not None:
            self.users(number)


@contextlib.contextmanager
def signals_waiting() -> Iterator[None]:
    """Signals wait, also those of a worker that is made here, until it has said that it ignores them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def sigchld_kept() -> Iterator[None]:
    """Torch would raise an error wherever the rank is when a worker dies, in the middle of a checkpoint say."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before)
