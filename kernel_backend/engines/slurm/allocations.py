"""Define allocations that are Slurm jobs, and derive their state from squeue's answer."""

from __future__ import annotations

from kernel_backend.engines.allocations.allocation import Allocation, AllocationRecord
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.parse import PENDING, SlurmJob, parse_time
from kernel_backend.model.cluster.allocations import HeldAllocation

LOG = "holder.log"


class SlurmRecord(AllocationRecord):
    """Properties of an allocation that is a Slurm job, with the job's comment.

    By this comment the job is found if sbatch did not return its id.
    """

    comment: str


class SlurmAllocation(Allocation):
    """Allocation that is a Slurm job, whose batch script (the holder) starts gangs and reports events.

    Gangs are named by `Submission.step`.
    """

    kind = SlurmRecord
    record: SlurmRecord

    def job(self, queue: Queue) -> SlurmJob | None:
        """Return the Slurm job of this allocation; None if the queue does not list it."""
        return queue.find(self.record.job, self.record.comment)

    def in_queue(self, queue: Queue) -> HeldAllocation:
        """Return the fields of this allocation that users may see, with the state of its job in `queue`."""
        job = self.job(queue)
        left = parse_time(job.left) if job is not None and job.state == "RUNNING" else None
        closing = ""
        if job is not None and job.state not in PENDING | {"RUNNING", "SUSPENDED"}:
            closing = f"its job is {job.state}"
        return self.shown(
            running=job is not None and job.state not in PENDING,
            ends=None if left is None else queue.asked_at + left,
            closing=closing,
        )
