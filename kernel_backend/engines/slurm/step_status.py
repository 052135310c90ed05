"""Derive the status of gangs that run as steps of a Slurm job that their search keeps (an allocation).

A result that a launcher has written takes precedence over the states of step and job.
"""

from __future__ import annotations

import time
from datetime import datetime

from kernel_backend.engines.base import GangStatus
from kernel_backend.engines.folders import OUTCOMES, never_launched
from kernel_backend.engines.log import read_end
from kernel_backend.engines.slurm.allocated_gangs import SlurmAllocatedGangs
from kernel_backend.engines.slurm.allocations import SlurmAllocation
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.outcomes import SETTLE_S, contested
from kernel_backend.engines.slurm.parse import PENDING, SlurmJob, wait_text
from kernel_backend.engines.slurm.steps import explanation, own_outcome, withdrawn
from kernel_backend.engines.slurm.submission import Submission, write_submission
from kernel_backend.engines.submission import by_signal
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.spec.config_text import duration_word

RUNS_ON_S = 1.0  # time after a step's end within which Slurm also ends the job, if Slurm has ended the step
RECORD_S = 30.0  # time for a launcher's record to appear on a shared file system
OF_SLURM = ("srun:", "slurmstepd")  # prefixes of Slurm's own lines in a launcher's log


class _Gang:
    """Gang that runs as a step of a Slurm job, and the state of that job now.

    The job is an allocation, which the gang's search keeps so that its gangs run as steps of it.
    """

    def __init__(self, key: AttemptId, folder: AttemptFolder, submission: Submission, queue: Queue) -> None:
        self.key, self.folder, self.submission, self.queue = key, folder, submission, queue
        self.name = submission.step
        self.held: SlurmAllocation | None = None
        self.job: SlurmJob | None = None
        self.over = True  # whether its allocation has ended

    @property
    def gone(self) -> bool:
        """Return whether the gang's step has ended, or can never start since its allocation has ended or is unknown."""
        return self.over or self.held is None or self.name in self.held.ended

    @property
    def began(self) -> bool:
        """Return whether the gang has started: a launcher has written to its folder, or the holder has announced it."""
        return (self.held is not None and self.name in self.held.started) or self.folder.launcher() is not None

    @property
    def log(self) -> str:
        """Return what the gang's launchers and its srun have printed last."""
        return read_end(self.folder.launcher_log)

    @property
    def withdrawn(self) -> bool:
        """Return whether a cancelled gang will certainly never start; call it only if the allocation is pending.

        That is so if the state "pending" comes from a squeue that was started after the gang had been cancelled.
        """
        asked_at = self.held.released.get(self.name, 0.0) if self.held is not None else 0.0
        return bool(self.submission.cancelled) and self.queue.asked_at > asked_at and not self.queue.problem

    def status(self, phase: str, reason: str = "") -> GangStatus:
        """Return the status of a gang that has not ended: "running" if `phase` is "running", else "pending"."""
        return GangStatus(key=self.key, phase="running" if phase == "running" else "pending", reason=reason)


class StepReader:
    """Reader of the status of gangs in allocations kept for searches; it stores the ends that it derives."""

    def __init__(self, kept: SlurmAllocatedGangs) -> None:
        self._kept = kept
        self._since: dict[AttemptId, float] = {}  # time since which a gang's step has ended without a launcher's record

    def forget(self, key: AttemptId) -> None:
        """Drop what is cached about the gang of an attempt."""
        self._since.pop(key, None)

    def look(self, key: AttemptId, folder: AttemptFolder, submission: Submission, queue: Queue) -> GangStatus:
        """Return the status of a gang that was assigned to an allocation and for which no end is stored."""
        gang = _Gang(key, folder, submission, queue)
        gang.held = self._kept.known.get(submission.allocation)
        if gang.held is not None:
            gang.job, gang.over = gang.held.job(queue), self._kept.over(gang.held, queue)
        result = folder.result() or folder.refusal()
        if result is not None:
            return self._recorded(gang, result)
        if not gang.gone:
            return self._open(gang)
        return self._without_record(gang) if gang.began else self._never_began(gang)

    def _recorded(self, gang: _Gang, result: AttemptResult) -> GangStatus:
        if by_signal(result):
            state = gang.job.state if gang.job is not None else ""
            prints = not gang.gone and time.time() < result.ended_at + SETTLE_S  # Slurm may still print why
            if prints or contested(result, state, gang.queue.asked_at, time.time()):
                return gang.status("running")
            if (found := explanation(gang.log, gang.job, gang.submission.cancelled)) is not None:
                return self._concluded(gang, *found)
        return GangStatus(key=gang.key, phase="ended", outcome=OUTCOMES[result.outcome], result=result)

    def _open(self, gang: _Gang) -> GangStatus:
        """Return the status of a gang that runs, or waits for its allocation.

        If it was cancelled and will never start, its end is stored.
        """
        held, job = gang.held, gang.job
        assert held is not None
        if gang.name in held.started:
            return gang.status("running", "runs in Slurm; its launchers have not met yet")
        if gang.queue.problem:
            return gang.status("pending", f"Slurm: {gang.queue.problem}")
        if job is None or job.state not in PENDING:
            return gang.status("pending", f"Slurm: about to begin in job {held.record.job}" if job else "")
        if gang.withdrawn:
            held.withdraw(gang.name)
            return self._concluded(gang, withdrawn(gang.submission.cancelled))
        length = duration_word(held.record.seconds)
        return gang.status("pending", f"{wait_text(job, datetime.now())}; an allocation of {length} for its search")

    def _never_began(self, gang: _Gang) -> GangStatus:
        """Return the status of a gang whose allocation ended before the gang had started.

        It is pending, as another allocation is requested, unless it was cancelled, refused, or its allocation is
        unknown.
        """
        if gang.submission.cancelled:
            return self._concluded(gang, withdrawn(gang.submission.cancelled))
        if gang.held is None:
            message = "the folder of its allocation is gone"
            failure = Failure(rank=0, type="JobForgotten", message=message, consequence=True)
            return self._concluded(gang, Outcome.LOST, failure)
        if gang.held.record.refused:
            failure = Failure(rank=0, type="SlurmRefused", message=gang.held.record.refused)
            return self._concluded(gang, Outcome.INFEASIBLE, failure)
        return gang.status("pending", "Slurm: its allocation has ended; another one is being requested")

    def _without_record(self, gang: _Gang) -> GangStatus:
        """Return the status of a gang whose step has ended, but not all of whose launchers have recorded how."""
        folder, submission = gang.folder, gang.submission
        if submission.cancelled != "kill" and self._may_be_told(gang):
            return gang.status("running")
        if (found := explanation(gang.log, gang.job, submission.cancelled)) is not None:
            return self._concluded(gang, *found)
        partial = folder.partial_result()  # if only some launchers have a record, a rank's own failure still counts
        if partial is not None and own_outcome(partial):
            return self._concluded(gang, OUTCOMES[partial.outcome], partial.failure)
        everywhere = all(AttemptFolder(folder.path, node).launcher() for node in range(len(folder.job().placement)))
        if not everywhere and not submission.cancelled and not gang.over:
            return self._concluded(gang, Outcome.FAILED, never_launched(folder, OF_SLURM).failure)
        return self._concluded(gang, Outcome.LOST)

    def _concluded(self, gang: _Gang, outcome: Outcome, failure: Failure | None = None) -> GangStatus:
        end = write_submission(gang.folder, gang.submission.ended(outcome, failure)).end
        assert end is not None
        self.forget(gang.key)
        return GangStatus(key=gang.key, phase="ended", outcome=end.outcome, result=end.result)

    def _may_be_told(self, gang: _Gang) -> bool:
        """Return whether to wait longer for a launcher's result, or for Slurm's reason for ending the step."""
        since = self._since.setdefault(gang.key, time.time())
        if not gang.over and gang.held is not None and gang.held.ended.get(gang.name) == 0:
            return time.time() < since + RECORD_S
        # If the job still runs some time after its step, Slurm has not ended the step.
        runs_on = gang.job is not None and gang.job.state == "RUNNING" and gang.queue.asked_at > since + RUNS_ON_S
        return time.time() < since + SETTLE_S and not runs_on
