"""Define what an engine with a queue of its own records about a gang: when it was submitted, why it waits, its end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, Self

from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure


class End(Record):
    """End of a gang as derived from its engine's state; stored, since engines forget what has ended."""

    outcome: Outcome
    failure: Failure | None = None
    problems: tuple[NodeProblem, ...] = ()
    at: float

    @property
    def result(self) -> AttemptResult | None:
        """Return the end as a launcher would have recorded it; None without a failure."""
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
    """What the records of all engines with a queue have in common."""

    at: float  # time of the submission
    delay: str = ""  # why the engine did not accept the gang, which is submitted again; "" if it did
    cancelled: Literal["", "release", "kill"] = ""  # why Daylight cancelled the gang
    end: End | None = None

    def ended(self, outcome: Outcome, failure: Failure | None = None, problems: tuple[NodeProblem, ...] = ()) -> Self:
        """Return this record with the end of its gang."""
        end = End(outcome=outcome, failure=failure, problems=problems, at=time.time())
        return self.model_copy(update={"end": end})


def by_signal(result: AttemptResult) -> bool:
    """Return whether a launcher recorded that a signal, whose sender it cannot know, killed a rank."""
    failure = result.failure
    return result.outcome == "failed" and failure is not None and failure.type in ("SIGKILL", "SIGTERM")


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[int]:
    """Hold the lock of a gang's record, so that only one call submits the gang; yield the lock's descriptor.

    `path` is that of the record. A process that inherits the descriptor holds the lock until it exits.
    """
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
