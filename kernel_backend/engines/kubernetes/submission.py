"""Read and write the Kubernetes engine's record of a gang: the file `kubernetes.json` in the attempt's folder."""

from __future__ import annotations

from kernel_backend.engines.submission import AllocatedGang, SubmissionFile


class Submission(AllocatedGang):
    """Record of the submission of a gang to Kubernetes.

    It is written before the gang's objects are created, so that an interrupted submission is noticed later.
    """

    name: str  # of the owner of its own objects
    kept: str = ""  # name of the owner of the allocation in which it runs; "" if its pods are its own
    uid: str = ""  # of the owner of its pods, once all have been created
    ending: str = ""  # the announced end of a node, for which its launchers were asked to leave; "" if they were not

    @property
    def delayed(self) -> bool:
        """Return whether some objects of the gang must still be created."""
        return not self.uid and self.end is None

    @property
    def pods(self) -> str:
        """Return the name of the ConfigMap that owns the gang's pods: its own pods, or those of its allocation."""
        return self.kept or self.name

    @property
    def step(self) -> str:
        """Return the name of the gang in its allocation: the attempt's key, a colon, and a suffix.

        The suffix is that of the names of the gang's objects. It depends on the attempt's secret token, and so differs
        if a key recurs.
        """
        _, experiment, trial, number, mark = self.name.split("-")
        return f"{experiment}.{trial}-{number}:{mark}"


SUBMISSIONS = SubmissionFile("kubernetes.json", Submission)
read_submission, write_submission, locked = SUBMISSIONS.read, SUBMISSIONS.write, SUBMISSIONS.locked
