"""Define allocations that are jobs of Slurm, and read their state from its queue."""

from __future__ import annotations

from kernel_backend.engines.allocations.allocation import Allocation, AllocationRecord
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.parse import PENDING, SlurmJob, parse_time
from kernel_backend.model.cluster.allocations import HeldAllocation

LOG = "holder.log"


class SlurmRecord(AllocationRecord):
    """Record of an allocation whose job may be found by its comment, if sbatch has not answered."""

    comment: str


class SlurmAllocation(Allocation):
    """Allocation and the events that its batch script has reported; its gangs have the names of `Submission.step`."""

    kind = SlurmRecord
    record: SlurmRecord

    def job(self, queue: Queue) -> SlurmJob | None:
        """Return the Slurm job of this allocation; None if the queue does not list it."""
        return queue.find(self.record.job, self.record.comment)

    def in_queue(self, queue: Queue) -> HeldAllocation:
        """Return the public record of this allocation, as far as `queue` shows its job."""
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
