"""Read and write the Kubernetes engine's record of a gang: the file `kubernetes.json` in the attempt's folder."""

from __future__ import annotations

from kernel_backend.engines.submission import QueuedGang, SubmissionFile


class Submission(QueuedGang):
    """Record of the submission of a gang.

    It is written before the gang's objects are created, so that an interrupted submission is noticed later.
    """

    name: str  # of the owner of its objects
    uid: str = ""  # of the owner, once all pods have been created
    ending: str = ""  # the announced end of a node, for which its launchers were asked to leave; "" if they were not

    @property
    def delayed(self) -> bool:
        """Return whether some objects of the gang must still be created."""
        return not self.uid and self.end is None


_FILE = SubmissionFile("kubernetes.json", Submission)
read_submission, write_submission, locked = _FILE.read, _FILE.write, _FILE.locked
