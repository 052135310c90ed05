"""Derive the status of gangs from the attempts' folders and from squeue.

A result that a launcher has written takes precedence over the state of the job. The exception is a rank that was killed
by a signal: if the job's state explains the signal, the state decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from kernel_backend.engines.base import GangStatus
from kernel_backend.engines.folders import OUTCOMES, GangFolders, never_launched
from kernel_backend.engines.slurm.allocated_gangs import SlurmAllocatedGangs
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.outcomes import (
    COMPLETING_S,
    NODE_LOST,
    contested,
    explained,
    job_outcome,
    node_problems,
)
from kernel_backend.engines.slurm.parse import ENDED, PENDING, SlurmJob, slurm_text, wait_text
from kernel_backend.engines.slurm.script import job_output
from kernel_backend.engines.slurm.step_status import OF_SLURM, RECORD_S, StepReader
from kernel_backend.engines.slurm.submission import Submission, read_submission, write_submission
from kernel_backend.engines.submission import by_signal
from kernel_backend.errors import DaylightError
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

FORGOTTEN_S = 10.0  # time after which a job that Slurm does not list counts as lost
INTERRUPTED_S = 60.0  # age from which a submission without a job counts as lost
NOT_MET = "its launchers have not met yet"
_log = logging.getLogger(__name__)


class StatusReader:
    """Reader of the status of a pool's gangs.

    It stores ends that it derives from the states of jobs, as Slurm soon forgets ended jobs.
    """

    def __init__(self, folders: GangFolders, scratch: Path, kept: SlurmAllocatedGangs) -> None:
        self._folders, self._scratch, self._steps = folders, scratch, StepReader(kept)
        self._since: dict[AttemptId, float] = {}  # when a gang's job was first missing or without a record

    def forget(self, key: AttemptId) -> None:
        """Drop what is cached about the gang of an attempt."""
        self._since.pop(key, None)
        self._steps.forget(key)

    def unended(self, of: Sequence[AttemptId] | None = None) -> Mapping[AttemptId, Submission | None]:
        """Return the record of each gang whose end may still depend on Slurm, by attempt; None if it has no record.

        If `of` is given, only attempts in it are considered. Gangs that were forgotten are left out.
        """
        found: dict[AttemptId, Submission | None] = {}
        for key in self._folders.listed(of):
            folder = self._folders.of(key)
            submission = read_submission(folder)
            if submission is not None and submission.end is not None:
                continue
            result = folder.result()
            if result is None or (by_signal(result) and time.time() < result.ended_at + COMPLETING_S):
                found[key] = submission
        return found

    def read(self, queue: Queue, of: Sequence[AttemptId] | None = None) -> Sequence[GangStatus]:
        """Return the status of each gang that was not forgotten; if `of` is given, only of attempts in it.

        `queue` is Slurm's last list of jobs.
        """
        return [self._known_status(key, queue) for key in self._folders.listed(of)]

    def _known_status(self, key: AttemptId, queue: Queue) -> GangStatus:
        """Return the status of a gang; if its files cannot be read now, log the error and report it as running."""
        try:
            folder = self._folders.of(key)
            known = folder.token_digest()  # read first, since `forget` deletes the token
            return self._look(key, folder, queue).model_copy(update={"token_digest": known})
        except (OSError, DaylightError, ValidationError) as error:
            _log.warning("the state of attempt %s cannot be read now: %s", key, error)
            return GangStatus(key=key, phase="running")

    def _look(self, key: AttemptId, folder: AttemptFolder, queue: Queue) -> GangStatus:
        submission = read_submission(folder)
        if submission is not None and submission.end is not None:
            end = submission.end
            return GangStatus(key=key, phase="ended", outcome=end.outcome, result=end.result)
        if submission is not None and submission.allocation:
            return self._steps.look(key, folder, submission, queue)
        job = queue.find(submission.job, submission.comment) if submission is not None else None
        result = folder.result() or folder.refusal()
        if result is not None and submission is not None and job is not None and explained(result, job.state):
            return self._ended(key, folder, submission, job)
        if result is not None and not contested(
            result, job.state if job is not None else "", queue.asked_at, time.time()
        ):
            return GangStatus(key=key, phase="ended", outcome=OUTCOMES[result.outcome], result=result)
        if submission is not None and submission.delayed:
            return GangStatus(key=key, phase="pending", reason=slurm_text(queue.problem or submission.delay))
        if submission is None or not submission.job:
            return self._interrupted(key, folder, submission, job, queue)
        if job is None:
            return self._missing(key, folder, submission, queue)
        if job.state in ENDED:
            return self._ended(key, folder, submission, job)
        self._since.pop(key, None)
        if job.state in PENDING:
            reason = slurm_text(queue.problem) if queue.problem else wait_text(job, datetime.now())
            return GangStatus(key=key, phase="pending", reason=reason)
        return GangStatus(key=key, phase="running", reason=f"runs in Slurm; {folder.wait() or NOT_MET}")

    def _interrupted(
        self, key: AttemptId, folder: AttemptFolder, submission: Submission | None, job: SlurmJob | None, queue: Queue
    ) -> GangStatus:
        """Return the status of a gang whose record has no id of a Slurm job.

        Either its sbatch still runs, or the service died before it had stored the id. After a minute, the id of the job
        that has the gang's comment is stored; without such a job, the gang counts as lost.
        """
        old = time.time() > self._folders.listed_at(key) + INTERRUPTED_S
        if submission is not None and job is not None and old:
            write_submission(folder, submission.model_copy(update={"job": job.id}))
        elif old and not queue.problem:
            return GangStatus(key=key, phase="ended", outcome=Outcome.LOST)
        # sbatch waits for a silent controller longer than a user should wait for the reason.
        return GangStatus(key=key, phase="pending", reason=slurm_text(queue.problem or "being submitted"))

    def _missing(self, key: AttemptId, folder: AttemptFolder, submission: Submission, queue: Queue) -> GangStatus:
        """Return the status of a gang whose job squeue does not list.

        The job may be new, Slurm may have forgotten it (the gang then counts as lost), or Slurm does not answer.
        """
        began = folder.launcher() is not None
        if queue.problem or queue.asked_at < submission.at + 1:
            reason = "" if began else slurm_text(queue.problem or "submitted")
            return GangStatus(key=key, phase="running" if began else "pending", reason=reason)
        if self._waited(key) < FORGOTTEN_S:
            return GangStatus(key=key, phase="running" if began else "pending")
        message = f"Slurm no longer knows job {submission.job}"
        failure = Failure(rank=0, type="JobForgotten", message=message, consequence=True)
        return self._concluded(key, folder, submission.ended(Outcome.LOST, failure))

    def _ended(self, key: AttemptId, folder: AttemptFolder, submission: Submission, job: SlurmJob) -> GangStatus:
        """Return the status of a gang whose job has ended.

        It is used if no launcher has written a result, or if the state of the job explains the signal in the result.
        """
        began = folder.launcher() is not None
        if job.state == "COMPLETED" and self._waited(key) < RECORD_S and began:
            return GangStatus(key=key, phase="running")
        everywhere = all(AttemptFolder(folder.path, node).launcher() for node in range(len(folder.job().placement)))
        if job.state in ("COMPLETED", "FAILED") and not everywhere and not submission.cancelled:
            failure = self._never_launched(folder, job)
            problems = node_problems("start", f"the launcher of job {job.id} could not begin", job.nodes)
            return self._concluded(key, folder, submission.ended(Outcome.FAILED, failure, problems))
        partial = folder.partial_result()  # of the launchers that left a record; a rank's own failure is decisive
        own = partial is not None and partial.failure is not None and not partial.failure.consequence
        if partial is not None and own and not explained(partial, job.state):
            return self._concluded(
                key, folder, submission.ended(OUTCOMES[partial.outcome], partial.failure, partial.problems)
            )
        outcome, failure = job_outcome(job.state, began, submission.cancelled, job.id, job.nodes)
        lost = node_problems("lost", f"Slurm lost it ({job.state}, job {job.id})", job.nodes)
        problems = lost if job.state in NODE_LOST else ()
        return self._concluded(key, folder, submission.ended(outcome, failure, problems))

    def _never_launched(self, folder: AttemptFolder, job: SlurmJob) -> Failure | None:
        """Return the failure of a gang one of whose launchers could not start.

        The message has the reason, or on nodes without a shared disk the path of the file that has it.
        """
        spec = folder.job()
        if not spec.staged:
            return never_launched(folder, OF_SLURM).failure
        where = f"{job_output(self._scratch, spec)} on the first node of {job.nodes or 'the job'}"
        message = f"job {job.id} ended before all of its launchers had reached the service; its output is in {where}"
        return Failure(rank=0, type="LauncherFailed", message=message)

    def _concluded(self, key: AttemptId, folder: AttemptFolder, submission: Submission) -> GangStatus:
        write_submission(folder, submission)
        self._since.pop(key, None)
        end = submission.end
        assert end is not None
        return GangStatus(key=key, phase="ended", outcome=end.outcome, result=end.result)

    def _waited(self, key: AttemptId) -> float:
        return time.monotonic() - self._since.setdefault(key, time.monotonic())
