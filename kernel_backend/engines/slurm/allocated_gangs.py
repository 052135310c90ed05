"""Run gangs of a search one after another as steps of one Slurm job that is kept for them (a pilot job)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.engines.allocations.choice import Demand, lasts
from kernel_backend.engines.allocations.gangs import AllocatedGangs
from kernel_backend.engines.base import EngineUnavailable, Unconfirmed
from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.slurm.allocation_requests import AllocationRequests, cancel
from kernel_backend.engines.slurm.allocations import SlurmAllocation
from kernel_backend.engines.slurm.commands import SlurmRefused
from kernel_backend.engines.slurm.controller import Controller, Queue
from kernel_backend.engines.slurm.parse import ENDED, PENDING, SlurmJob, limit_text, never, refusal_advice
from kernel_backend.engines.slurm.script import requested, step_script
from kernel_backend.engines.slurm.submission import SUBMISSIONS, Submission, write_submission
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

STEP = "step.sh"  # script of a gang's step, in the attempt's folder
KILL_S = 10.0  # time for a killed step to end
FORGOTTEN_S = 10.0  # time without a job in Slurm's list from which an allocation counts as ended
INTERRUPTED_S = 60.0  # age of a request without a job from which it counts as failed
CLOSE_S = 30.0  # time for a holder process to exit after the order to close
ASK_S = 1.0  # between calls of squeue while a gang is being killed
_POLL_S = 0.05


class SlurmAllocatedGangs(AllocatedGangs[SlurmAllocation, Submission]):
    """Slurm jobs that a pool keeps for several trials of a search (allocations), and the gangs that run in them."""

    kind = SlurmAllocation

    def __init__(self, home: Path, pool: Pool, service: str, controller: Controller, folders: GangFolders) -> None:
        super().__init__(home, pool.name, folders, SUBMISSIONS)
        self._pool, self._controller = pool, controller
        self._requests = AllocationRequests(home, pool, service)
        self._queue = Queue()  # as of the last call of `tend`

    # Allocations

    def over(self, held: SlurmAllocation, queue: Queue) -> bool:
        """Return whether the Slurm job of an allocation has ended, according to `queue`, the last answer of squeue.

        True also if the job was refused, or has been missing from Slurm's list for some time.
        """
        if held.record.refused:
            return True
        if (job := held.job(queue)) is not None:
            held.missing_since = None
            return job.state in ENDED
        if not held.record.job:
            return time.time() > held.record.at + INTERRUPTED_S
        if queue.problem or queue.asked_at < held.record.at + 1:
            return False
        held.missing_since = held.missing_since or time.monotonic()
        return time.monotonic() > held.missing_since + FORGOTTEN_S

    async def tend(self, queue: Queue) -> None:
        """Read what the batch scripts of the allocations report, and give back, cancel or delete allocations where due.

        The service calls it in each of its rounds, with the last answer of squeue.
        """
        self._queue = queue
        for held in list(self.known.values()):
            await asyncio.to_thread(held.refresh)
            if (job := held.job(queue)) is not None:
                await self._tend(held, job)
            if self.over(held, queue):
                await self._ended(held)

    def job(self, submission: Submission, queue: Queue) -> SlurmJob | None:
        """Return the Slurm job of the allocation in which a gang is to run; None if `queue` does not list it."""
        held = self.known.get(submission.allocation)
        return held.job(queue) if held is not None else None

    def _shown(self, held: SlurmAllocation) -> HeldAllocation:
        return held.in_queue(self._queue)

    async def _end(self, held: SlurmAllocation) -> None:
        await cancel(held, "--state=PENDING")

    async def _tend(self, held: SlurmAllocation, job: SlurmJob) -> None:
        shown = self._shown(held)
        if not held.record.job and time.time() > held.record.at + INTERRUPTED_S / 2:
            held.change(job=job.id)  # the service died, or sbatch did not answer, before the id was recorded
        if not shown.gang and not shown.closing and not lasts(shown, held.record.seconds, time.time()):
            await self.give_back(held.record.id, "its time is nearly over")
        if job.state == "PENDING" and (advice := never(job.reason)) and await cancel(held, "--state=PENDING"):
            why = f"Slurm: {job.reason}: {advice}"
            held.change(refused=why, closing=why)
        if held.record.closing and not held.gang and job.state not in ENDED | PENDING:
            held.closing_since = held.closing_since or time.monotonic()
            if time.monotonic() > held.closing_since + CLOSE_S:
                held.closing_since = time.monotonic()
                await cancel(held)

    # Gangs

    def _demand(self, job: LaunchSpec) -> Demand:
        return Demand(job.experiment, job.python, (*requested(job, self._pool), *self._pool.settings.extra))

    def _assigned(
        self, job: LaunchSpec, folder: AttemptFolder, submission: Submission, held: SlurmAllocation
    ) -> Submission:
        folder.write(STEP, step_script(job, self._pool, folder.path).encode())
        return submission.model_copy(update={"allocation": held.record.id})

    async def _assign_again(self, folder: AttemptFolder, submission: Submission) -> None:
        await self.place(await asyncio.to_thread(folder.job), folder, submission)

    def _start_order(self, folder: AttemptFolder) -> Mapping[str, str]:
        return {"script": str(folder.path / STEP), "log": str(folder.launcher_log)}

    async def place(self, job: LaunchSpec, folder: AttemptFolder, submission: Submission) -> Submission:
        """Assign a gang to a free allocation, or to a new one that is requested for it; return its submission.

        If Slurm refuses the request for good, the gang is ended. Raises EngineUnavailable if Slurm does not answer.
        """
        try:
            return await super().place(job, folder, submission)
        except SlurmRefused as error:
            message = f"Slurm: {limit_text(error.message)}. To change: {refusal_advice(error.message)}"
            failure = Failure(rank=0, type="SlurmRefused", message=message)
            return write_submission(folder, submission.ended(Outcome.INFEASIBLE, failure))

    async def _request(self, job: LaunchSpec, demand: Demand, step: str) -> SlurmAllocation:
        held = await self._requests.prepared(job, demand)
        held.assign(step)
        self._known[held.record.id] = held
        try:
            await self._requests.submit(held)
        except SlurmRefused:
            del self._known[held.record.id]
            held.remove()
            raise
        except EngineUnavailable:
            held.withdraw(step)  # if Slurm has the job after all, it is found by its comment
            raise
        return held

    async def kill(self, key: AttemptId, submission: Submission) -> None:
        """Kill the job step of a gang; if the allocation's batch script does not answer, cancel the whole job.

        Raises Unconfirmed if the gang may still run.
        """
        held, name = self.known.get(submission.allocation), submission.step
        if held is None:
            return
        # Launchers that have recorded the end of all ranks exit by themselves.
        leaving = await asyncio.to_thread(self._folders.of(key).result) is not None
        if not leaving:
            held.order("kill", name)
        began, ask_at, cancelled = time.monotonic(), 0.0, False
        while name not in held.ended:
            waited = time.monotonic() - began
            if waited > KILL_S:
                raise Unconfirmed(f"the step of attempt {key} in job {held.record.job} has not ended; its slots stay")
            if waited >= ask_at and (not leaving or waited > KILL_S / 2):
                ask_at = waited + ASK_S
                if await self._gone(held, name):
                    return
            if waited > KILL_S / 2 and not cancelled:
                cancelled = await cancel(held)
            await asyncio.sleep(_POLL_S)
            await asyncio.to_thread(held.refresh)

    async def _gone(self, held: SlurmAllocation, key: str) -> bool:
        """Return whether a gang cannot run any more, as the job of its allocation is pending or has ended.

        `key` is the name of the gang. The state comes from a new squeue. If the job is pending, the gang is withdrawn
        from the allocation. Raises Unconfirmed if Slurm does not answer.
        """
        try:
            queue = await self._controller.fresh()
        except EngineUnavailable as error:
            raise Unconfirmed(f"the step of attempt {key} may still run: {error}") from None
        job = held.job(queue)
        if job is not None and job.state in PENDING:
            held.withdraw(key)
            return True
        return self.over(held, queue)
