"""Read from Slurm's accounting (sacct) how jobs ended that squeue no longer lists."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.slurm.commands import SlurmRefused, run
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.parse import ENDED, SlurmJob
from kernel_backend.engines.slurm.submission import Submission
from kernel_backend.model.ids import AttemptId

SACCT = "JobID,JobName,State,NodeList,Submit,Comment"
EVERY_S = 3.0
CLOCKS_S = 60.0  # difference allowed between the clocks of controller and service
_log = logging.getLogger(__name__)


class Accounted(NamedTuple):
    """Fields of a Slurm job, as sacct lists it."""

    id: str
    name: str
    state: str  # CANCELLED without `by UID`
    nodes: str
    submitted: float  # seconds since the epoch
    comment: str  # "" at most sites, since slurmdbd stores it only if configured to


def parse_sacct(text: str) -> dict[str, Accounted]:
    """Return the jobs in the output of `sacct -n -P -X -o SACCT`, by job id; invalid lines are skipped."""
    found = {}
    for row in (line.split("|", 5) for line in text.splitlines()):
        try:
            id, name, state, nodes, submitted, comment = row
            at = datetime.fromisoformat(submitted).timestamp()
        except ValueError:
            continue
        found[id] = Accounted(id, name, state.partition(" ")[0], nodes, at, comment)
    return found


def ended_job(key: AttemptId, submission: Submission, job: Accounted | None) -> SlurmJob | None:
    """Return a gang's job with its final state as sacct lists it; None if it has not ended, or is not this gang's.

    A job with the same id may be another one: a Slurm that has lost its state numbers jobs from 1 again.
    """
    if job is None or job.state not in ENDED or job.name != job_name(key) or job.submitted < submission.at - CLOCKS_S:
        return None
    if job.comment not in ("", submission.comment):
        return None
    nodes = "" if job.nodes == "None assigned" else job.nodes
    return SlurmJob(job.id, job.state, "None", nodes, "N/A", submission.comment)


def job_name(key: AttemptId) -> str:
    """Return the name that the Slurm job of a gang has."""
    return f"daylight-{key}"


class Accounting:
    """Cache of sacct's answers about a pool's jobs.

    If sacct shows that the site has no accounting, it is not called again.
    """

    def __init__(self) -> None:
        self._none = False  # the site has no slurmdbd
        self._asked_at = 0.0
        self._jobs: dict[str, Accounted] = {}

    async def completed(self, queue: Queue, submissions: Mapping[AttemptId, Submission | None]) -> Queue:
        """Return a copy of `queue` with jobs added that have ended and that squeue no longer lists, according to sacct.

        They are the jobs of the given gangs (`submissions`).
        """
        missing = {key: each for key, each in submissions.items() if each is not None and _left(queue, each)}
        if missing and not self._none and time.monotonic() > self._asked_at + EVERY_S:
            self._asked_at = time.monotonic()
            await self._ask([each.job for each in missing.values()])
        for key, submission in missing.items():
            if (job := ended_job(key, submission, self._jobs.get(submission.job))) is not None:
                queue = queue.corrected(job)
        return queue

    async def _ask(self, ids: list[str]) -> None:
        try:
            self._jobs = parse_sacct(await run("sacct", "-n", "-P", "-X", "-j", ",".join(ids), "-o", SACCT))
        except (SlurmRefused, EngineUnavailable) as error:
            self._none = "disabled" in error.message or "not found" in error.message
            log = _log.info if self._none else _log.warning
            log("what became of jobs %s cannot be asked: %s", ", ".join(ids), error)


def _left(queue: Queue, submission: Submission) -> bool:
    asked = not queue.problem and queue.asked_at > submission.at + 1
    return asked and bool(submission.job) and queue.find(submission.job, submission.comment) is None
