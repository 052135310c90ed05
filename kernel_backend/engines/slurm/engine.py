"""Run gangs as jobs of Slurm, whose queue decides where and when; state is in the attempts' folders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kernel_backend.engines.base import Caps, CheckContext, EngineUnavailable, GangStatus, Unconfirmed
from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.slurm.check import check_pool
from kernel_backend.engines.slurm.commands import SlurmRefused, run
from kernel_backend.engines.slurm.controller import Controller, Queue
from kernel_backend.engines.slurm.nodes import PartitionNodes
from kernel_backend.engines.slurm.parse import (
    ENDED,
    PENDING,
    SlurmJob,
    never,
    parse_job_id,
    refusal_advice,
    too_many,
    was_preempted,
)
from kernel_backend.engines.slurm.script import comment, job_env, sbatch_options, scratch_folder, script
from kernel_backend.engines.slurm.status import StatusReader
from kernel_backend.engines.slurm.submission import Submission, locked, read_submission, write_submission
from kernel_backend.errors import Conflict
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.reports import SpoolPage, SpoolPosition
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.model.views.overview import LogChunk

KILL_S = 10.0  # for a killed job to leave its nodes
_POLL_S = 0.2
_log = logging.getLogger(__name__)


class SlurmEngine:
    """Engine for the gangs of one pool, as the user who runs the service."""

    name = "slurm"
    caps = Caps(atomic_gang=True, preemption=True, quota=True, multi_node=True, per_user_identity=False, places=False)

    def __init__(self, home: Path, pool: Pool, service: str, controller: Controller | None = None) -> None:
        """Create an engine; `service` is a name unique to the service, `controller` is shared by its pools."""
        self._home, self._pool, self._service = home, pool, service
        self._controller = controller or Controller()
        self._folders = GangFolders(home, pool.name)
        self._scratch = scratch_folder(os.environ, pool, service)
        self._statuses = StatusReader(self._folders, self._scratch)
        self._nodes = PartitionNodes(pool)

    async def nodes(self) -> Sequence[Node]:
        """Return the partition's nodes, as of the last half minute; raises EngineUnavailable."""
        return await self._nodes.newest()

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Submit a gang's job unless it has one; a job that Slurm refuses for good is listed as ended.

        Raises EngineUnavailable if Slurm does not answer, or its queue is full: the same call may succeed later.
        """
        folder = self._folders.of(job.id)
        begun = folder.launcher() is not None or read_submission(folder) is not None
        if begun and folder.token_digest() != token_digest(token):
            await self.set_aside(job.id)
            raise Conflict(f"{folder.path} was another attempt's; it is set aside")
        await asyncio.to_thread(folder.prepare, job, token)
        async with locked(folder.path) as lock:
            known = read_submission(folder)
            if folder.launcher() is not None or (known is not None and (known.job or known.end)):
                return
            new = Submission(comment=comment(self._service, job, token_digest(token)), at=time.time())
            if known is not None:  # sbatch was interrupted: the job may exist
                found = (await self._controller.fresh()).find("", new.comment)
                new = new.model_copy(update={"job": found.id}) if found is not None else new
            write_submission(folder, new)
            self._folders.mark(job.id)
            if not new.job:
                await self._sbatch(job, token, folder, new, lock)

    async def statuses(self, of: Sequence[AttemptId] | None = None) -> Sequence[GangStatus]:
        """Return the status of every gang of this pool, with one question to Slurm a second for all of them.

        With `of`, only of those gangs.
        """
        keys = await asyncio.to_thread(self._statuses.unended, of)
        queue = await self._controller.queue() if keys else Queue()
        for key, submission in keys.items():
            job = queue.find(submission.job, submission.comment) if submission else None
            if submission is None or job is None:
                continue
            if job.state == "PENDING" and never(job.reason):
                await self._withdraw(key, submission, job)
            if job.state == "TIMEOUT" and await self._preempted(job):
                queue = queue.corrected(job._replace(state="PREEMPTED"))
        return await asyncio.to_thread(self._statuses.read, queue, of)

    async def release(self, key: AttemptId) -> None:
        """Cancel a gang that waits in the queue; make the ranks of one that runs commit a checkpoint and exit."""
        submission = self._cancelling(key, "release")
        if submission is None or not submission.job or submission.end is not None:
            return
        with contextlib.suppress(SlurmRefused):  # it has ended
            await run("scancel", "--state=PENDING", submission.job)
            # Slurm signals each process of a job's steps: by SIGTERM it would end the ranks themselves, and loader
            # workers. Only launchers listen to SIGURG.
            await run("scancel", "--signal=URG", submission.job)

    async def kill(self, key: AttemptId) -> None:
        """Cancel a gang's job at once; return when it has left its nodes, as far as Slurm knows."""
        submission = self._cancelling(key, "kill")
        if submission is None:
            return
        deadline = time.monotonic() + KILL_S
        # Launchers that have recorded the end of all ranks leave by themselves; signals would make it a failed job.
        leaving = await asyncio.to_thread(self._folders.of(key).result) is not None
        try:
            while (job := (await self._controller.fresh()).find(submission.job, submission.comment)) is not None:
                if job.state in ENDED or (leaving and job.state == "COMPLETING"):
                    return
                if time.monotonic() > deadline:
                    raise Unconfirmed(f"job {job.id} of attempt {key} is {job.state}; its slots stay taken", job=job.id)
                if not leaving or time.monotonic() > deadline - KILL_S / 2:
                    await self._cancel(job, hard=leaving or time.monotonic() < deadline - KILL_S / 2)
                await asyncio.sleep(_POLL_S)
        except EngineUnavailable as error:
            raise Unconfirmed(f"the job of attempt {key} may still run: {error}") from None

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of a gang's spool, read from its folder."""
        return await self._folders.records(key, after, begin)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return up to 256 KiB of a rank's log from an offset, or its last `tail` bytes."""
        return await self._folders.logs(key, rank, offset, tail)

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the job in a gang's folder and rename the folder, so that its key is free again."""
        await self.kill(key)
        await asyncio.to_thread(self._folders.rename, key)

    async def forget(self, key: AttemptId) -> None:
        """Stop listing a gang, and delete its token."""
        self._statuses.forget(key)
        await asyncio.to_thread(self._folders.forget, key)

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Check the pool by a probe on two of its nodes, or on its only one."""
        return await check_pool(self._home, self._pool, context)

    async def _sbatch(
        self, job: LaunchSpec, token: str, folder: AttemptFolder, submission: Submission, lock: int
    ) -> None:
        """Submit a gang's job. `sbatch` holds the lock, too, so that it counts even if this process dies."""
        options = sbatch_options(job, self._pool, folder.path, submission.comment)
        text = script(job, self._pool, folder.path, self._scratch)
        env = job_env(os.environ, job, folder.path, self._scratch, token)
        try:
            output = await run("sbatch", *options, stdin=text, env=env, pass_fds=(lock,))
        except SlurmRefused as error:
            if too_many(error.message):
                self._folders.unmark(job.id)
                raise EngineUnavailable(f"Slurm: {error.message} (your site's limit of submitted jobs)") from None
            message = f"Slurm: {error.message}. To change: {refusal_advice(error.message)}"
            failure = Failure(rank=0, type="SlurmRefused", message=message)
            write_submission(folder, submission.ended(Outcome.INFEASIBLE, failure))
        except EngineUnavailable:
            self._folders.unmark(job.id)
            raise
        else:
            write_submission(folder, submission.model_copy(update={"job": parse_job_id(output)}))

    async def _withdraw(self, key: AttemptId, submission: Submission, job: SlurmJob) -> None:
        """Cancel a job that would wait for ever, and end its gang with the reason."""
        try:
            await run("scancel", "--state=PENDING", job.id)
        except (SlurmRefused, EngineUnavailable) as error:
            _log.warning("job %s, which can never start, could not be cancelled: %s", job.id, error)
            return
        message = f"Slurm: {job.reason}: {never(job.reason)}"
        failure = Failure(rank=0, type="SlurmRefused", message=message)
        write_submission(self._folders.of(key), submission.ended(Outcome.INFEASIBLE, failure))

    @staticmethod
    async def _preempted(job: SlurmJob) -> bool:
        """Return whether a job that reads TIMEOUT was preempted: its time then ended with the grace period."""
        try:
            return was_preempted(await run("scontrol", "show", "job", "-o", job.id))
        except (SlurmRefused, EngineUnavailable):
            return False

    def _cancelling(self, key: AttemptId, why: Literal["release", "kill"]) -> Submission | None:
        """Note why a gang's job is cancelled; return its submission, None if there was none."""
        folder = self._folders.of(key)
        submission = read_submission(folder)
        if submission is None or submission.cancelled == why or submission.end is not None:
            return submission
        return write_submission(folder, submission.model_copy(update={"cancelled": why}))

    @staticmethod
    async def _cancel(job: SlurmJob, hard: bool) -> None:
        """Cancel a job; with `hard`, send SIGKILL to its step first.

        Otherwise Slurm sends SIGTERM, also for `scancel --signal=KILL JOB`, and SIGKILL only KillWait seconds later.
        """
        if hard and job.state not in PENDING:
            with contextlib.suppress(SlurmRefused):  # it has no step yet, or no longer
                await run("scancel", "--signal=KILL", f"{job.id}.0")
                return
        with contextlib.suppress(SlurmRefused):  # it has ended
            await run("scancel", job.id)
