"""List the user's Slurm jobs by squeue, at most once a second for all pools of a service."""

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
WAIT_S = 2.0  # time to wait for squeue; then its last answer is used
_log = logging.getLogger(__name__)


class Queue(NamedTuple):
    """Jobs in the last answer of squeue, including jobs that ended in the last minutes."""

    jobs: Jobs = NO_JOBS
    asked_at: float = 0.0  # time at which squeue was started; 0 if it never answered
    problem: str = ""  # why there is no newer answer

    def find(self, id: str, comment: str) -> SlurmJob | None:
        """Return the job with this id and comment; for an id of "", the newest job with this comment. None without one.

        The comment is compared as well because job ids can recur: a Slurm that has lost its state numbers jobs from 1
        again.
        """
        if id:
            found = self.jobs.get(id)
            return found if found is not None and found.comment == comment else None
        named = [job for job in self.jobs.values() if job.comment == comment and job.id.isdigit()]
        return max(named, key=lambda job: int(job.id), default=None)

    def corrected(self, job: SlurmJob) -> Queue:
        """Return a copy of the queue in which `job` replaces the job with the same id, or is added."""
        return self._replace(jobs={**self.jobs, job.id: job})


class Controller:
    """Cache of Slurm's queue for the engines of all pools; at most one squeue runs at a time."""

    def __init__(self) -> None:
        self._queue = Queue()
        self._tried_at = 0.0  # start of the last squeue, answered or not
        self._asking: asyncio.Task[None] | None = None

    async def queue(self) -> Queue:
        """Return the queue, at most a second old.

        If Slurm does not answer in time, return the last known queue, with the problem in it.
        """
        if time.time() < self._tried_at + EVERY_S and not self._busy():
            return self._queue
        if await self._ask(WAIT_S):
            return self._queue
        slow = f"Slurm's controller does not answer: squeue has waited for {WAIT_S:g} s"
        return self._queue._replace(problem=self._queue.problem or slow)

    async def fresh(self) -> Queue:
        """Return the jobs as listed by a squeue that starts after this call; raise EngineUnavailable if it fails."""
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
        """Run squeue, or wait for one that runs already; return whether it has ended.

        The wait takes up to `patience` seconds; None means until it has ended.
        """
        if not self._busy() or self._asking is None:
            self._tried_at = time.time()
            self._asking = asyncio.create_task(self._squeue(), name="squeue")
        done, _ = await asyncio.wait({self._asking}, timeout=patience)
        return bool(done)

    async def _squeue(self) -> None:
        began = time.time()
        try:
            # Ended jobs are listed as well: without a launcher's record, Slurm's state decides the outcome.
            text = await run("squeue", "-h", "-t", "all", "-u", str(os.geteuid()), "-o", SQUEUE)
            self._queue = Queue(parse_squeue(text), began)
        except (EngineUnavailable, SlurmRefused) as error:
            if not self._queue.problem:
                _log.warning("the states of jobs stay as last seen: %s", error)
            self._queue = self._queue._replace(problem=str(error))
