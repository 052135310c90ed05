"""Read and write what the Slurm engine records of a gang: the file `slurm.json` in the attempt's folder."""

from __future__ import annotations

from kernel_backend.engines.submission import AllocatedGang, SubmissionFile


class Submission(AllocatedGang):
    """Record of a gang's submission, written before sbatch runs, so that an interrupted one is noticed."""

    comment: str
    job: str = ""  # Slurm's job id; "" if sbatch has not answered, or the gang is a step of an allocation

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
        """Return the name of the gang in its allocation: the attempt's key and the digest of its token."""
        return ":".join(self.comment.split(":")[-2:])


SUBMISSIONS = SubmissionFile("slurm.json", Submission)
read_submission, write_submission, locked = SUBMISSIONS.read, SUBMISSIONS.write, SUBMISSIONS.locked
