"""Define an engine's record of a gang: when it was submitted, why it waits, and how it ended.

Engines that submit gangs to a queue of their own (Slurm, Kubernetes) keep such records in the attempts' folders.
"""

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
from kernel_backend.model.trial import OUT_OF_MEMORY, Failure
from kernel_backend.model.versions import read


class End(Record):
    """End of a gang, derived from the state of the engine.

    It is stored, as engines soon forget jobs and pods that have ended.
    """

    outcome: Outcome
    failure: Failure | None = None
    problems: tuple[NodeProblem, ...] = ()
    at: float

    @property
    def result(self) -> AttemptResult | None:
        """Return this end in the form of a result that launchers write; None if the gang ended without a failure."""
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
    """Record of a gang that was submitted to an engine with a queue; each such engine adds fields of its own."""

    at: float  # time of the submission
    delay: str = ""  # why the engine did not accept the gang, which is submitted again; "" if it did
    cancelled: Literal["", "release", "kill"] = ""  # why Daylight cancelled the gang
    end: End | None = None

    def ended(self, outcome: Outcome, failure: Failure | None = None, problems: tuple[NodeProblem, ...] = ()) -> Self:
        """Return a copy of this record in which the gang has ended now, with this outcome, failure and node faults."""
        end = End(outcome=outcome, failure=failure, problems=problems, at=time.time())
        return self.model_copy(update={"end": end})


class AllocatedGang(QueuedGang):
    """Record of a gang that may run in an allocation kept for its search."""

    allocation: str = ""  # id of that allocation; "" if it has none

    @property
    def step(self) -> str:
        """Return the name of the gang in its allocation: the attempt's key, a colon, and a text that makes it unique.

        The key alone may recur: after a database is restored, new attempts have the keys of earlier ones.
        """
        raise NotImplementedError


def by_signal(result: AttemptResult) -> bool:
    """Return whether, according to a launcher's result, a rank was killed by SIGKILL or SIGTERM.

    The launcher cannot know who sent the signal, but the engine may: after a kill for lack of memory, it can advise
    which setting to raise.
    """
    failure = result.failure
    return result.outcome == "failed" and failure is not None and failure.type in ("SIGKILL", "SIGTERM", OUT_OF_MEMORY)


G = TypeVar("G", bound=QueuedGang)


class SubmissionFile(Generic[G]):
    """Access to the file, in the folder of each attempt, that has an engine's record of the gang."""

    def __init__(self, name: str, kind: type[G]) -> None:
        """Set the name of the file, and the class of the records in it."""
        self._name, self._kind = name, kind

    def read(self, folder: AttemptFolder) -> G | None:
        """Return the record in an attempt's folder; None if there is none, or it is invalid."""
        try:
            return read(self._kind, (folder.path / self._name).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None

    def write(self, folder: AttemptFolder, submission: G) -> G:
        """Write the record to an attempt's folder, and return it."""
        folder.write(self._name, submission.model_dump_json().encode())
        return submission

    @contextlib.asynccontextmanager
    async def locked(self, folder: AttemptFolder) -> AsyncIterator[int]:
        """Hold a lock on a gang's record during the `async with` block, so that only one call submits or ends the gang.

        Yields the lock's file descriptor. A process that inherits it, as sbatch does, holds the lock until it exits.
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
