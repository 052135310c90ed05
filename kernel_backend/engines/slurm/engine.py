"""Run gangs as Slurm jobs; Slurm decides when and where they run, and all state is in the attempts' folders."""

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
from kernel_backend.engines.folders import FolderEngine, GangFolders
from kernel_backend.engines.slurm.accounting import Accounting
from kernel_backend.engines.slurm.allocated_gangs import SlurmAllocatedGangs
from kernel_backend.engines.slurm.check import check_pool
from kernel_backend.engines.slurm.commands import TIMEOUT_S, SlurmRefused, run
from kernel_backend.engines.slurm.controller import Controller, Queue
from kernel_backend.engines.slurm.handover import DelayedGangs
from kernel_backend.engines.slurm.nodes import PartitionNodes
from kernel_backend.engines.slurm.parse import (
    ENDED,
    PENDING,
    SlurmJob,
    limit_text,
    never,
    parse_job_id,
    refusal_advice,
    too_many,
    was_preempted,
)
from kernel_backend.engines.slurm.script import comment, comment_mark, job_env, sbatch_options, scratch_folder, script
from kernel_backend.engines.slurm.site_load import PartitionLoad
from kernel_backend.engines.slurm.status import StatusReader
from kernel_backend.engines.slurm.submission import Submission, locked, read_submission, write_submission
from kernel_backend.errors import Conflict
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

KILL_S = 10.0  # time for a killed job to leave its nodes
SBATCH_S = TIMEOUT_S + 5  # time for sbatch to answer or to be killed
_POLL_S = 0.2
_log = logging.getLogger(__name__)


class SlurmEngine(FolderEngine):
    """Engine for the gangs of one pool; its Slurm jobs belong to the Unix user as whom the service runs."""

    name = "slurm"
    caps = Caps(atomic_gang=True, preemption=True, quota=True, multi_node=True, per_user_identity=False, places=False)

    def __init__(self, home: Path, pool: Pool, service: str, controller: Controller | None = None) -> None:
        """Create the engine of a pool, for the service whose home directory is `home`.

        `service` is the id of that service, a random name stored in `home`. `controller` is the cache of Slurm's queue,
        which all pools of a service share.
        """
        super().__init__(GangFolders(home, pool.name))
        self._home, self._pool, self._service = home, pool, service
        self.keeps = pool.settings.shared  # its holders and the service share files
        self._controller = controller or Controller()
        self._scratch = scratch_folder(os.environ, pool, service)
        self._kept = SlurmAllocatedGangs(home, pool, service, self._controller, self._folders)
        self._statuses = StatusReader(self._folders, self._scratch, self._kept)
        self._nodes, self._accounting = PartitionNodes(pool), Accounting()
        self._load = PartitionLoad(pool, comment_mark(service, pool.name))
        self._delayed = DelayedGangs(self._folders, self._controller, self.submit)

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes of the partition, listed at most 30 s ago; raise EngineUnavailable without an answer."""
        return await self._nodes.newest()

    async def site_load(self) -> SiteLoad:
        """Return the free slots of the partition's nodes, and the jobs of others that wait for these nodes."""
        return await self._load.read(await self._nodes.newest())

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Submit a Slurm job for a gang, unless it has one; if Slurm refuses it for good, record the gang as ended.

        If Slurm does not accept a gang now (limit on submitted jobs, no answer), the gang is pending with that reason.
        A later call of `statuses` submits it again, after gangs that have waited longer. A gang of a search that keeps
        allocations gets a free one of these, if there is one.
        """
        folder = self._folders.of(job.id)
        begun = folder.launcher() is not None or read_submission(folder) is not None
        if begun and folder.token_digest() != token_digest(token):
            await self.set_aside(job.id)
            raise Conflict(f"{folder.path} was another attempt's; it is set aside")
        await asyncio.to_thread(folder.prepare, job, token)
        async with locked(folder) as lock:
            known, began = read_submission(folder), folder.launcher() is not None
            if (began and known is None) or (known is not None and known.handed_over):
                return
            new = known or Submission(comment=comment(self._service, job, token_digest(token)), at=time.time())
            if known is not None:  # sbatch was interrupted, or did not answer: the job may exist
                found = (await self._controller.fresh()).find("", new.comment)
                new = new.model_copy(update={"job": found.id}) if found is not None else new
            else:
                new = new.model_copy(
                    update={"delay": await asyncio.to_thread(self._delayed.reason, self._statuses.unended)}
                )
            write_submission(folder, new)
            self._folders.mark(job.id)
            if new.job or began:
                return
            if job.keep_allocation:  # it may get an allocation that its search keeps, even if Slurm accepts no job now
                await self._place(job, folder, new)
            elif known is not None or not new.delay:
                await self._sbatch(job, token, folder, new, lock)

    async def statuses(self, of: Sequence[AttemptId] | None = None) -> Sequence[GangStatus]:
        """Return the status of each gang of this pool that was not forgotten; if `of` is given, only of attempts in it.

        For all pools and gangs together, squeue runs at most once a second. Each call also starts the work that is due,
        such as submitting delayed gangs again.
        """
        keys = await asyncio.to_thread(self._statuses.unended, of)
        queue = await self._controller.queue() if keys or self._kept.known else Queue()
        queue = await self._accounting.completed(queue, keys)
        self._delayed.advance(keys, queue)
        await self._kept.tend(queue)
        for key, submission in keys.items():
            if submission is None:
                continue
            kept = bool(submission.allocation)
            job = self._kept.job(submission, queue) if kept else queue.find(submission.job, submission.comment)
            if job is None:
                continue
            if not kept and job.state == "PENDING" and never(job.reason):
                await self._withdraw(key, submission, job)
            if job.state == "TIMEOUT" and await self._preempted(job):
                queue = queue.corrected(job._replace(state="PREEMPTED"))
        return await asyncio.to_thread(self._statuses.read, queue, of)

    async def release(self, key: AttemptId) -> None:
        """Make the ranks of a running gang save a checkpoint and exit; cancel the job of a pending gang."""
        submission = await self._cancelling(key, "release")
        if submission is not None and submission.allocation and submission.end is None:
            await self._kept.release(submission)
        if submission is None or not submission.job or submission.end is not None:
            return  # `statuses` ends a gang without a job
        with contextlib.suppress(SlurmRefused):  # it has ended
            await run("scancel", "--state=PENDING", submission.job)
            # scancel signals every process of a job's steps: SIGTERM would kill the ranks and loader workers. Only
            # launchers handle SIGURG.
            await run("scancel", "--signal=URG", submission.job)

    async def kill(self, key: AttemptId) -> None:
        """Cancel a gang's job at once; return when Slurm reports that the job has ended.

        Raises Unconfirmed if it does not end in time, or if Slurm does not answer.
        """
        submission = await self._cancelling(key, "kill")
        if submission is None:
            return
        if submission.allocation:
            await self._kept.kill(key, submission)
            return
        deadline = time.monotonic() + KILL_S
        # Launchers that have recorded the end of all ranks exit by themselves; signals would make the job fail.
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

    async def forget(self, key: AttemptId) -> None:
        """Leave a gang out of `statuses` from now on, and delete its secret token."""
        self._statuses.forget(key)
        await asyncio.to_thread(self._folders.forget, key)

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Check the pool: read its partition from Slurm, and run a probe program on two of its nodes if it has two."""
        return await check_pool(self._home, self._pool, context)

    # Allocations that searches keep

    def allocations(self) -> Sequence[HeldAllocation]:
        """Return the allocations of this pool that searches keep or wait for, as of the last call of `statuses`."""
        return self._kept.shown()

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended; `why` is shown to users."""
        await self._kept.give_back(id, why)

    async def _sbatch(
        self, job: LaunchSpec, token: str, folder: AttemptFolder, submission: Submission, lock: int
    ) -> None:
        """Submit the job of a gang by sbatch, and record the result.

        `lock` is the file descriptor of the lock on the gang's record. sbatch inherits it, so that the record stays
        locked until sbatch exits, even if this process dies.
        """
        options = sbatch_options(job, self._pool, folder.path, submission.comment)
        text = script(job, self._pool, folder.path, self._scratch)
        env = job_env(os.environ, job, self._pool, folder.path, self._scratch, token)
        try:
            output = await run("sbatch", *options, stdin=text, env=env, pass_fds=(lock,))
        except SlurmRefused as error:
            reason = limit_text(error.message)
            if too_many(error.message):
                write_submission(folder, submission.model_copy(update={"delay": reason}))
                return
            failure = Failure(
                rank=0, type="SlurmRefused", message=f"Slurm: {reason}. To change: {refusal_advice(error.message)}"
            )
            write_submission(folder, submission.ended(Outcome.INFEASIBLE, failure))
        except EngineUnavailable as error:
            write_submission(folder, submission.model_copy(update={"delay": error.message}))
        else:
            write_submission(folder, submission.model_copy(update={"job": parse_job_id(output)}))

    async def _place(self, job: LaunchSpec, folder: AttemptFolder, submission: Submission) -> None:
        """Assign a gang to a free allocation that its search keeps, or request a new one.

        If Slurm does not answer, or accepts no request now, the gang waits.
        """
        try:
            await self._kept.place(job, folder, submission)
        except EngineUnavailable as error:
            write_submission(folder, submission.model_copy(update={"delay": error.message}))

    async def _withdraw(self, key: AttemptId, submission: Submission, job: SlurmJob) -> None:
        """Cancel a pending job that Slurm can never start, and record the end of its gang, with Slurm's reason."""
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
        """Return whether a job that ended in state TIMEOUT was in fact preempted.

        Slurm preempts a job by reducing its time limit to the grace period.
        """
        try:
            return was_preempted(await run("scontrol", "show", "job", "-o", job.id))
        except (SlurmRefused, EngineUnavailable):
            return False

    async def _cancelling(self, key: AttemptId, why: Literal["release", "kill"]) -> Submission | None:
        """Record in a gang's submission that it is to be ended, by `release` or `kill`; return the submission.

        None if the gang was never submitted. Raises Unconfirmed if an sbatch for the gang still runs and does not end.
        """
        folder = self._folders.of(key)
        if (submission := read_submission(folder)) is None:
            return None
        try:
            async with (
                asyncio.timeout(SBATCH_S),
                contextlib.nullcontext() if submission.job else locked(folder),
            ):
                submission = read_submission(folder)
                if submission is None or submission.cancelled == why or submission.end is not None:
                    return submission
                return write_submission(folder, submission.model_copy(update={"cancelled": why}))
        except TimeoutError:
            raise Unconfirmed(f"sbatch still runs for attempt {key}, whose job may start yet") from None

    @staticmethod
    async def _cancel(job: SlurmJob, hard: bool) -> None:
        """Cancel a job by scancel; with `hard`, send SIGKILL to the job's running step instead.

        A plain scancel, even with `--signal=KILL` for the job, makes Slurm send SIGTERM first, and SIGKILL only after
        its setting KillWait.
        """
        if hard and job.state not in PENDING:
            with contextlib.suppress(SlurmRefused):  # the job has no running step
                await run("scancel", "--signal=KILL", f"{job.id}.0")
                return
        with contextlib.suppress(SlurmRefused):  # it has ended
            await run("scancel", job.id)
