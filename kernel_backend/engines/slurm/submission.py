"""Read and write what the Slurm engine records of a gang: the file `slurm.json` in the attempt's folder."""

from __future__ import annotations

from kernel_backend.engines.submission import QueuedGang, SubmissionFile


class Submission(QueuedGang):
    """Record of a gang's submission, written before sbatch runs, so that an interrupted one is noticed."""

    comment: str
    job: str = ""  # Slurm's job id; "" if sbatch has not answered, or the gang is a step of an allocation
    allocation: str = ""  # id of the kept allocation in which the gang is a step

    @property
    def delayed(self) -> bool:
        """Return whether sbatch did not accept the job, so that it must be submitted later."""
        return bool(self.delay) and not self.job and not self.allocation and self.end is None

    @property
    def handed_over(self) -> bool:
        """Return whether nothing is left to submit: it has a job or an allocation, was cancelled, or has ended."""
        return bool(self.job or self.allocation or self.end or self.cancelled)

    @property
    def step(self) -> str:
        """Return the name that the gang has in its allocation: the attempt's key and the digest of its token.

        The key alone may recur: after a database is restored, new attempts have the keys of earlier ones.
        """
        return ":".join(self.comment.split(":")[-2:])


_FILE = SubmissionFile("slurm.json", Submission)
read_submission, write_submission, locked = _FILE.read, _FILE.write, _FILE.locked
