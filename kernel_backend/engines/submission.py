"""Define the record of a gang that an engine with its own queue keeps: time of submission, reason of waiting, end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator
from typing import Generic, Literal, Self, TypeVar

from pydantic import ValidationError

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.model.versions import read


class End(Record):
    """End of a gang as derived from its engine's state; stored, since engines forget what has ended."""

    outcome: Outcome
    failure: Failure | None = None
    problems: tuple[NodeProblem, ...] = ()
    at: float

    @property
    def result(self) -> AttemptResult | None:
        """Return the end in the form of a launcher's record; None if the gang ended without a failure."""
        if self.failure is None:
            return None
        lost = self.outcome in (Outcome.LOST, Outcome.KILLED)
        return AttemptResult(
            outcome="lost" if lost else "failed",
            exit_codes=(),
            failure=self.failure,
            problems=self.problems,
            ended_at=self.at,
        )


class QueuedGang(Record):
    """Fields that the records of all engines with a queue share."""

    at: float  # time of the submission
    delay: str = ""  # why the engine did not accept the gang, which is submitted again; "" if it did
    cancelled: Literal["", "release", "kill"] = ""  # why Daylight cancelled the gang
    end: End | None = None

    def ended(self, outcome: Outcome, failure: Failure | None = None, problems: tuple[NodeProblem, ...] = ()) -> Self:
        """Return this record with the end of its gang."""
        end = End(outcome=outcome, failure=failure, problems=problems, at=time.time())
        return self.model_copy(update={"end": end})


class AllocatedGang(QueuedGang):
    """Record of a gang that may run in an allocation which is kept for its search."""

    allocation: str = ""  # id of that allocation; "" if it has none

    @property
    def step(self) -> str:
        """Return the name of the gang in its allocation: the attempt's key, a colon, and what tells gangs of it apart.

        The key alone may recur: after a database is restored, new attempts have the keys of earlier ones.
        """
        raise NotImplementedError


def by_signal(result: AttemptResult) -> bool:
    """Return whether a launcher's record says that a rank was killed by a signal, whose sender it cannot know."""
    failure = result.failure
    return result.outcome == "failed" and failure is not None and failure.type in ("SIGKILL", "SIGTERM")


G = TypeVar("G", bound=QueuedGang)


class SubmissionFile(Generic[G]):
    """File in attempts' folders that holds an engine's record of the gang."""

    def __init__(self, name: str, kind: type[G]) -> None:
        """Set the file's name, and the class of the records in it."""
        self._name, self._kind = name, kind

    def read(self, folder: AttemptFolder) -> G | None:
        """Return the submission in an attempt's folder; None if the gang was never submitted."""
        try:
            return read(self._kind, (folder.path / self._name).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None

    def write(self, folder: AttemptFolder, submission: G) -> G:
        """Write the submission to an attempt's folder, and return it."""
        folder.write(self._name, submission.model_dump_json().encode())
        return submission

    @contextlib.asynccontextmanager
    async def locked(self, folder: AttemptFolder) -> AsyncIterator[int]:
        """Hold the lock of a gang's record, so that only one call submits or ends it; yield the lock's descriptor.

        A process that inherits the descriptor holds the lock until it exits: sbatch does.
        """
        path = folder.path / f"{self._name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.05)
            yield descriptor
        finally:
            os.close(descriptor)
