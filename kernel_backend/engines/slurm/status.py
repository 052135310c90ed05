"""Read the status of gangs from the attempts' folders and the queue: a launcher's record counts before Slurm's word."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from kernel_backend.engines.base import GangStatus
from kernel_backend.engines.folders import OUTCOMES, GangFolders, never_launched
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.outcomes import by_signal, explained, job_outcome
from kernel_backend.engines.slurm.parse import ENDED, PENDING, SlurmJob, wait_text
from kernel_backend.engines.slurm.script import job_output
from kernel_backend.engines.slurm.submission import Submission, read_submission, write_submission
from kernel_backend.errors import DaylightError
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

SETTLE_S = 5.0  # for Slurm to say why it killed ranks, after a launcher's record of their end
COMPLETING_S = 60.0  # for a job that Slurm ends to leave its nodes
FORGOTTEN_S = 10.0  # after which a job that Slurm does not list is lost
INTERRUPTED_S = 60.0  # after which a submission without a job is lost
RECORD_S = 30.0  # for the record of a launcher that exited normally to appear on a shared file system
_OF_SLURM = ("srun:", "slurmstepd")  # lines of theirs in a launcher's log
_log = logging.getLogger(__name__)


class StatusReader:
    """Reader of a pool's gangs; conclusions from Slurm's word are written into their folders, as Slurm forgets jobs."""

    def __init__(self, folders: GangFolders, scratch: Path) -> None:
        self._folders, self._scratch = folders, scratch
        self._since: dict[AttemptId, float] = {}  # since when a gang's job is missing, or has no record

    def forget(self, key: AttemptId) -> None:
        """Drop what is remembered about a gang."""
        self._since.pop(key, None)

    def unended(self, of: Sequence[AttemptId] | None = None) -> Mapping[AttemptId, Submission | None]:
        """Return the gangs about which Slurm must be asked; with `of`, only of those."""
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
        """Return the status of every gang; with `of`, only of those."""
        return [self._known_status(key, queue) for key in self._folders.listed(of)]

    def _known_status(self, key: AttemptId, queue: Queue) -> GangStatus:
        """Return the status of a gang; if its files cannot be read, log that and return it as running."""
        try:
            folder = self._folders.of(key)
            known = folder.token_digest()  # read first, since a gang that has ended may have no token any more
            return self._look(key, folder, queue).model_copy(update={"token_digest": known})
        except (OSError, DaylightError, ValidationError) as error:
            _log.warning("the state of attempt %s cannot be read now: %s", key, error)
            return GangStatus(key=key, phase="running")

    def _look(self, key: AttemptId, folder: AttemptFolder, queue: Queue) -> GangStatus:
        submission = read_submission(folder)
        if submission is not None and submission.end is not None:
            end = submission.end
            return GangStatus(key=key, phase="ended", outcome=end.outcome, result=end.result)
        job = queue.find(submission.job, submission.comment) if submission is not None else None
        result = folder.result() or folder.refusal()
        if result is not None and submission is not None and job is not None and explained(result, job.state):
            return self._ended(key, folder, submission, job)
        if result is not None and not _contested(result, job, queue):
            return GangStatus(key=key, phase="ended", outcome=OUTCOMES[result.outcome], result=result)
        if submission is None or not submission.job:
            return self._interrupted(key, folder, submission, job, queue)
        if job is None:
            return self._missing(key, folder, submission, queue)
        if job.state in ENDED:
            return self._ended(key, folder, submission, job)
        self._since.pop(key, None)
        if job.state in PENDING:
            reason = f"Slurm: {queue.problem}" if queue.problem else wait_text(job, datetime.now())
            return GangStatus(key=key, phase="pending", reason=reason)
        return GangStatus(key=key, phase="running", reason="runs in Slurm; its launchers have not met yet")

    def _interrupted(
        self, key: AttemptId, folder: AttemptFolder, submission: Submission | None, job: SlurmJob | None, queue: Queue
    ) -> GangStatus:
        """Return the status of a gang whose submission has not got its job's id: it goes on, or the service died."""
        old = time.time() > self._folders.listed_at(key) + INTERRUPTED_S
        if submission is not None and job is not None and old:
            write_submission(folder, submission.model_copy(update={"job": job.id}))
        elif old and not queue.problem:
            return GangStatus(key=key, phase="ended", outcome=Outcome.LOST)
        return GangStatus(key=key, phase="pending", reason="Slurm: being submitted")

    def _missing(self, key: AttemptId, folder: AttemptFolder, submission: Submission, queue: Queue) -> GangStatus:
        """Return the status of a gang whose job Slurm does not list: just submitted, not asked, or forgotten."""
        began = folder.launcher() is not None
        if queue.problem or queue.asked_at < submission.at + 1:
            reason = "" if began else f"Slurm: {queue.problem or 'submitted'}"
            return GangStatus(key=key, phase="running" if began else "pending", reason=reason)
        if self._waited(key) < FORGOTTEN_S:
            return GangStatus(key=key, phase="running" if began else "pending")
        message = f"Slurm no longer knows job {submission.job}"
        failure = Failure(rank=0, type="JobForgotten", message=message, consequence=True)
        return self._concluded(key, folder, submission.ended(Outcome.LOST, failure))

    def _ended(self, key: AttemptId, folder: AttemptFolder, submission: Submission, job: SlurmJob) -> GangStatus:
        """Return the status of a gang whose job has ended without a record, or with another explanation."""
        began = folder.launcher() is not None
        if job.state == "COMPLETED" and self._waited(key) < RECORD_S and began:
            return GangStatus(key=key, phase="running")
        everywhere = all(AttemptFolder(folder.path, node).launcher() for node in range(len(folder.job().placement)))
        if job.state in ("COMPLETED", "FAILED") and not everywhere and not submission.cancelled:
            failure = self._never_launched(folder, job)
            return self._concluded(key, folder, submission.ended(Outcome.FAILED, failure))
        partial = folder.partial_result()  # some launchers have died; a rank's own failure counts before Slurm's word
        own = partial is not None and partial.failure is not None and not partial.failure.consequence
        if partial is not None and own and not explained(partial, job.state):
            return self._concluded(key, folder, submission.ended(OUTCOMES[partial.outcome], partial.failure))
        outcome, failure = job_outcome(job.state, began, submission.cancelled, job.id, job.nodes)
        return self._concluded(key, folder, submission.ended(outcome, failure))

    def _never_launched(self, folder: AttemptFolder, job: SlurmJob) -> Failure | None:
        """Return why the launcher of a node could not begin, or where the nodes' own disks have the reason."""
        spec = folder.job()
        if not spec.staged:
            return never_launched(folder, _OF_SLURM).failure
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


def _contested(result: AttemptResult, job: SlurmJob | None, queue: Queue) -> bool:
    """Return whether Slurm may still say that it has ended the ranks itself."""
    state, age = job.state if job is not None else "", time.time() - result.ended_at
    if not by_signal(result) or state in ENDED:
        return False
    if state == "COMPLETING":
        return age < COMPLETING_S
    # A job that runs on is none that Slurm ends by SIGKILL; before a preemption it sends SIGTERM.
    runs_on = state == "RUNNING" and queue.asked_at > result.ended_at
    return age < SETTLE_S and not (runs_on and result.failure is not None and result.failure.type == "SIGKILL")
