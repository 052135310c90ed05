"""Run gangs of a search one after another as steps of one Slurm job, which is kept for them (a pilot job)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.engines.base import EngineUnavailable, Unconfirmed
from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.slurm.allocation_choice import Demand, choose, lasts
from kernel_backend.engines.slurm.allocation_requests import AllocationRequests, cancel
from kernel_backend.engines.slurm.allocations import Allocation, key_of, stored
from kernel_backend.engines.slurm.commands import SlurmRefused
from kernel_backend.engines.slurm.controller import Controller, Queue
from kernel_backend.engines.slurm.parse import ENDED, PENDING, SlurmJob, limit_text, never, refusal_advice
from kernel_backend.engines.slurm.script import requested, step_script
from kernel_backend.engines.slurm.submission import Submission, read_submission, write_submission
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
AGAIN_S = 5.0  # between requests of another allocation for gangs whose allocation ended before they began
_POLL_S = 0.05
_log = logging.getLogger(__name__)


class AllocatedGangs:
    """Slurm allocations that a pool keeps for several trials of a search, and the gangs that run in them."""

    def __init__(self, home: Path, pool: Pool, service: str, controller: Controller, folders: GangFolders) -> None:
        self._home, self._pool = home, pool
        self._controller, self._folders = controller, folders
        self._requests = AllocationRequests(home, pool, service)
        self._held: dict[str, Allocation] | None = None
        self._queue = Queue()  # as of the last call of `tend`
        self._again_at = 0.0

    # Allocations

    @property
    def known(self) -> Mapping[str, Allocation]:
        """Return the allocations by id; the first call reads those that an earlier process of the service has left."""
        if self._held is None:
            self._held = {each.record.id: each for each in stored(self._home, self._pool.name)}
            for key in self._folders.listed() if self._held else ():
                self._order_again(key, self._folders.of(key))
        return self._held

    def shown(self) -> list[HeldAllocation]:
        """Return the public records of all allocations, as they were at the last call of `tend`."""
        return [each.shown(self._queue) for each in list(self.known.values())]

    def over(self, held: Allocation, queue: Queue) -> bool:
        """Return whether the job of an allocation has ended, as far as `queue`, the last answer of squeue, shows."""
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

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended.

        An unknown `id` is ignored; `why` is shown to users.
        """
        held = self.known.get(id)
        if held is None or held.record.closing:
            return
        _log.info("allocation %s (job %s) is given back: %s", id, held.record.job, why)
        held.change(closing=why)
        held.order("close", why=why)
        await cancel(held, "--state=PENDING")

    async def tend(self, queue: Queue) -> None:
        """Read what the batch scripts report, and update the allocations; called in each round of the service."""
        self._queue = queue
        for held in list(self.known.values()):
            await asyncio.to_thread(held.refresh)
            if (job := held.job(queue)) is not None:
                await self._tend(held, job)
            if self.over(held, queue):
                await self._ended(held)

    async def _tend(self, held: Allocation, job: SlurmJob) -> None:
        shown = held.shown(self._queue)
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

    async def _ended(self, held: Allocation) -> None:
        """Handle an ended allocation: request another for a gang that has not begun, or else delete its folder."""
        gang = held.gang
        if not gang or gang in held.started or held.record.refused:
            if not any(self._is_listed(step, held) for step in held.ordered):
                del self._known[held.record.id]
                await asyncio.to_thread(held.remove)
            return
        folder = self._folders.of(key_of(gang))
        submission = read_submission(folder)
        if submission is None or submission.step != gang or submission.cancelled or submission.end is not None:
            held.withdraw(gang)
        elif time.monotonic() > self._again_at:
            self._again_at = time.monotonic() + AGAIN_S
            job = await asyncio.to_thread(folder.job)
            with contextlib.suppress(EngineUnavailable):
                await self.place(job, folder, submission)
                held.withdraw(gang)

    def _order_again(self, key: AttemptId, folder: AttemptFolder) -> None:
        """Repeat the order to start a gang, as the service may have died before it wrote the order.

        Repeating it is harmless.
        """
        submission = read_submission(folder)
        held = self.known.get(submission.allocation) if submission is not None and submission.end is None else None
        if held is not None and submission is not None and submission.step not in held.ordered:
            self._order(held, submission.step, folder)

    @staticmethod
    def _order(held: Allocation, step: str, folder: AttemptFolder) -> None:
        held.assign(step)
        held.order("start", step, script=str(folder.path / STEP), log=str(folder.launcher_log))

    @property
    def _known(self) -> dict[str, Allocation]:
        assert self._held is not None
        return self._held

    def _is_listed(self, step: str, held: Allocation) -> bool:
        """Return whether the gang named `step` in this allocation is still listed, and no end of it is recorded."""
        for listed in self._folders.listed([key_of(step)]):
            submission = read_submission(self._folders.of(listed))
            return submission is not None and submission.allocation == held.record.id and submission.end is None
        return False

    # Gangs

    async def place(self, job: LaunchSpec, folder: AttemptFolder, submission: Submission) -> None:
        """Assign a gang to a free allocation, or request a new one for it.

        If Slurm refuses the request for good, the gang is ended. Raises EngineUnavailable if Slurm does not answer.
        """
        demand = Demand(job.experiment, job.python, (*requested(job, self._pool), *self._pool.settings.extra))
        known = [(each.demand, each.record.seconds, each.shown(self._queue)) for each in self.known.values()]
        found = choose(demand, known, time.time())
        if found is not None:
            held = self.known[found.id]
            held.assign(submission.step)  # before the first await, so that no other gang gets it
        elif (requested_now := await self._request(job, demand, folder, submission)) is not None:
            held = requested_now
        else:
            return
        folder.write(STEP, step_script(job, self._pool, folder.path).encode())
        write_submission(folder, submission.model_copy(update={"allocation": held.record.id}))
        self._order(held, submission.step, folder)

    async def _request(
        self, job: LaunchSpec, demand: Demand, folder: AttemptFolder, submission: Submission
    ) -> Allocation | None:
        """Request an allocation for a gang and others of equal demand; return None if Slurm refuses it for good."""
        held = await self._requests.prepared(job, demand)
        held.assign(submission.step)
        self._known[held.record.id] = held
        try:
            await self._requests.submit(held)
        except SlurmRefused as error:
            del self._known[held.record.id]
            held.remove()
            message = f"Slurm: {limit_text(error.message)}. To change: {refusal_advice(error.message)}"
            failure = Failure(rank=0, type="SlurmRefused", message=message)
            write_submission(folder, submission.ended(Outcome.INFEASIBLE, failure))
            return None
        except EngineUnavailable:
            held.withdraw(submission.step)  # if Slurm has the job after all, it is found by its comment
            raise
        return held

    def job(self, submission: Submission, queue: Queue) -> SlurmJob | None:
        """Return the Slurm job of the allocation that a gang was assigned to; None if the queue does not list it."""
        held = self.known.get(submission.allocation)
        return held.job(queue) if held is not None else None

    async def release(self, submission: Submission) -> None:
        """Withdraw a gang that has not begun; let the ranks of a running one save a checkpoint and exit."""
        held = self.known.get(submission.allocation)
        if held is not None and submission.step not in held.ended:
            held.order("release", submission.step)
            held.released[submission.step] = time.time()

    async def kill(self, key: AttemptId, submission: Submission) -> None:
        """Kill a gang's step; if the allocation's batch script does not answer, end the allocation.

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

    async def _gone(self, held: Allocation, key: str) -> bool:
        """Return whether Slurm says that a gang's job is pending or has ended; raise Unconfirmed without an answer."""
        try:
            queue = await self._controller.fresh()
        except EngineUnavailable as error:
            raise Unconfirmed(f"the step of attempt {key} may still run: {error}") from None
        job = held.job(queue)
        if job is not None and job.state in PENDING:
            held.withdraw(key)
            return True
        return self.over(held, queue)
