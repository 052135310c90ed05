"""Read and write the Slurm engine's record of a gang: the file `slurm.json` in the attempt's folder."""

from __future__ import annotations

from kernel_backend.engines.submission import AllocatedGang, SubmissionFile


class Submission(AllocatedGang):
    """Record of the submission of a gang to Slurm.

    It is written before sbatch runs, so that an interrupted submission is noticed later.
    """

    comment: str
    job: str = ""  # Slurm's job id; "" if sbatch has not answered, or the gang is a step of an allocation

    @property
    def delayed(self) -> bool:
        """Return whether Slurm has not accepted the gang yet, so that it must be submitted again."""
        return bool(self.delay) and not self.job and not self.allocation and self.end is None

    @property
    def handed_over(self) -> bool:
        """Return whether the gang need not be submitted any more.

        It has a job or an allocation, was cancelled, or has ended.
        """
        return bool(self.job or self.allocation or self.end or self.cancelled)

    @property
    def step(self) -> str:
        """Return the name of the gang in its allocation: the attempt's key, and a part of its token's digest."""
        return ":".join(self.comment.split(":")[-2:])


SUBMISSIONS = SubmissionFile("slurm.json", Submission)
read_submission, write_submission, locked = SUBMISSIONS.read, SUBMISSIONS.write, SUBMISSIONS.locked
