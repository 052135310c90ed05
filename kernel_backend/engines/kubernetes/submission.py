"""Read and write the Kubernetes engine's record of a gang: the file `kubernetes.json` in the attempt's folder."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from pydantic import ValidationError

from kernel_backend.engines.submission import QueuedGang
from kernel_backend.engines.submission import locked as locked_record
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.versions import read

FILE = "kubernetes.json"


class Submission(QueuedGang):
    """Record of a gang's submission, written before its first object is created, so that an interrupted one is seen."""

    name: str  # of the owner of its objects
    uid: str = ""  # of the owner, once all pods have been created

    @property
    def delayed(self) -> bool:
        """Return whether objects of the gang are still to be created."""
        return not self.uid and self.end is None


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


def locked(folder: AttemptFolder) -> AbstractAsyncContextManager[int]:
    """Hold the lock of a gang, so that only one call creates or deletes its objects."""
    return locked_record(folder.path / FILE)
