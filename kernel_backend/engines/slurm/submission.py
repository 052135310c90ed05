"""Read and write what this engine knows about a gang: the file `slurm.json` in the attempt's folder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.model.versions import read

FILE = "slurm.json"


class End(Record):
    """End of a gang as concluded from Slurm's word; kept, since Slurm forgets a job after minutes."""

    outcome: Outcome
    failure: Failure | None = None
    at: float

    @property
    def result(self) -> AttemptResult | None:
        """Return the end as a launcher would have recorded it; None if there is nothing to tell."""
        if self.failure is None:
            return None
        lost = self.outcome in (Outcome.LOST, Outcome.KILLED)
        return AttemptResult(
            outcome="lost" if lost else "failed", exit_codes=(), failure=self.failure, ended_at=self.at
        )


class Submission(Record):
    """A gang's job. It is written before sbatch runs, so that an interrupted submission is noticed."""

    comment: str
    at: float  # time of the submission
    job: str = ""  # Slurm's id; "": sbatch has not answered
    cancelled: Literal["", "release", "kill"] = ""  # by us
    end: End | None = None

    def ended(self, outcome: Outcome, failure: Failure | None = None) -> Submission:
        """Return the submission of a gang that has ended like that."""
        return self.model_copy(update={"end": End(outcome=outcome, failure=failure, at=time.time())})


def read_submission(folder: AttemptFolder) -> Submission | None:
    """Return the submission of a gang; None if there was none."""
    try:
        return read(Submission, (folder.path / FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def write_submission(folder: AttemptFolder, submission: Submission) -> Submission:
    """Write a submission and return it."""
    folder.write(FILE, submission.model_dump_json().encode())
    return submission


@contextlib.asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[int]:
    """Hold a lock of the folder, so that of concurrent calls only one submits its gang; yield its descriptor.

    A process that inherits the descriptor holds the lock until it ends.
    """
    descriptor = os.open(folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
