"""Ask Slurm's controller about all jobs of this user at most once a second, for all pools of a service."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.slurm.commands import SlurmRefused, run
from kernel_backend.engines.slurm.parse import NO_JOBS, SQUEUE, Jobs, SlurmJob, parse_squeue

EVERY_S = 1.0
WAIT_S = 2.0  # for an answer, before the last one is used
_log = logging.getLogger(__name__)


class Queue(NamedTuple):
    """The last answer of squeue, ended jobs of the last minutes included."""

    jobs: Jobs = NO_JOBS
    asked_at: float = 0.0  # time of that question; 0: never answered
    problem: str = ""  # why there is no newer answer

    def find(self, id: str, comment: str) -> SlurmJob | None:
        """Return the job with this id and comment; with an empty id, the newest with this comment.

        A Slurm that has lost its state numbers jobs from 1 again, so that an id alone may be another job's.
        """
        if id:
            found = self.jobs.get(id)
            return found if found is not None and found.comment == comment else None
        named = [job for job in self.jobs.values() if job.comment == comment and job.id.isdigit()]
        return max(named, key=lambda job: int(job.id), default=None)

    def corrected(self, job: SlurmJob) -> Queue:
        """Return the queue with another version of a job."""
        return self._replace(jobs={**self.jobs, job.id: job})


class Controller:
    """Cache of the queue, shared by the engines of all pools; however many ask, one squeue runs at a time."""

    def __init__(self) -> None:
        self._queue = Queue()
        self._tried_at = 0.0  # beginning of the last question, answered or not
        self._asking: asyncio.Task[None] | None = None

    async def queue(self) -> Queue:
        """Return the queue as of the last second; if Slurm is slow or silent, as last seen, with the problem."""
        if time.time() < self._tried_at + EVERY_S and not self._busy():
            return self._queue
        if await self._ask(WAIT_S):
            return self._queue
        return self._queue._replace(problem=self._queue.problem or "the controller is slow to answer")

    async def fresh(self) -> Queue:
        """Return the queue as it is now, not before this call; raises EngineUnavailable."""
        called = time.time()
        while self._tried_at < called or self._busy():
            await self._ask()
        if self._queue.problem:
            raise EngineUnavailable(self._queue.problem)
        return self._queue

    def _busy(self) -> bool:
        task = self._asking
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def _ask(self, patience: float | None = None) -> bool:
        """Wait for the question that is being asked, or ask; return whether the answer came in time."""
        if not self._busy() or self._asking is None:
            self._tried_at = time.time()
            self._asking = asyncio.create_task(self._squeue(), name="squeue")
        done, _ = await asyncio.wait({self._asking}, timeout=patience)
        return bool(done)

    async def _squeue(self) -> None:
        began = time.time()
        try:
            # Ended jobs as well: for those without a launcher's record Slurm's word decides.
            text = await run("squeue", "-h", "-t", "all", "-u", str(os.geteuid()), "-o", SQUEUE)
            self._queue = Queue(parse_squeue(text), began)
        except (EngineUnavailable, SlurmRefused) as error:
            if not self._queue.problem:
                _log.warning("the states of jobs stay as last seen: %s", error)
            self._queue = self._queue._replace(problem=str(error))
