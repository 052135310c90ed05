"""Submit gangs again that sbatch did not accept: at the limit of submitted jobs, or without an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.slurm.commands import SlurmRefused, run
from kernel_backend.engines.slurm.controller import Controller, Queue
from kernel_backend.engines.slurm.parse import ENDED
from kernel_backend.engines.slurm.submission import Submission, locked, read_submission, write_submission
from kernel_backend.errors import DaylightError
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.states import Outcome

RETRY_S = 30.0  # between tries at a limit; the next try comes sooner if a job of the user leaves the queue
Submissions = Mapping[AttemptId, Submission | None]
_log = logging.getLogger(__name__)


def in_order(submissions: Submissions) -> list[AttemptId]:
    """Return the gangs that sbatch has not accepted yet, cancelled ones included, in order of submission."""
    found = [(each.at, key) for key, each in submissions.items() if each is not None and each.delayed]
    return [key for _, key in sorted(found)]


class RetryTimer:
    """Timer of the next try: at once if jobs have left the queue or Slurm answers again, else after RETRY_S seconds."""

    def __init__(self) -> None:
        self._again, self._active = 0.0, 0

    def due(self, queue: Queue) -> bool:
        """Return whether to try now; False as long as Slurm does not answer."""
        if queue.problem:
            self._again = 0.0
            return False
        return time.monotonic() >= self._again or _active(queue) < self._active

    def tried(self, queue: Queue) -> None:
        """Record that a try has failed, with the queue as it was then."""
        self._again, self._active = time.monotonic() + RETRY_S, _active(queue)


class DelayedGangs:
    """Gangs of a pool that sbatch has not accepted yet; they are stored in their folders and so survive a restart."""

    def __init__(
        self, folders: GangFolders, controller: Controller, submit: Callable[[LaunchSpec, str], Awaitable[None]]
    ) -> None:
        self._folders, self._controller, self._submit = folders, controller, submit
        self._timer, self._tasks = RetryTimer(), set[asyncio.Task[None]]()

    @staticmethod
    def reason(unended: Callable[[], Submissions]) -> str:
        """Return why gangs wait to be submitted, as a new one must then wait behind them; "" if none waits.

        `unended` returns the submissions of gangs that have not ended.
        """
        waiting = unended()
        return next((each.delay for key in in_order(waiting) if (each := waiting[key]) and not each.cancelled), "")

    def advance(self, submissions: Submissions, queue: Queue) -> None:
        """Start a task that submits the waiting gangs, unless such a task runs or the next try is not due yet."""
        keys = in_order(submissions)
        cancelled = any(each.cancelled for key in keys if (each := submissions[key]) is not None)
        if keys and not self._tasks and (self._timer.due(queue) or (cancelled and not queue.problem)):
            task = asyncio.create_task(self._submit_all(keys, queue), name="delayed gangs")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _submit_all(self, keys: Sequence[AttemptId], queue: Queue) -> None:
        """Submit these gangs in order, until Slurm does not accept one; end the gangs that were cancelled."""
        for key in keys:
            folder = self._folders.of(key)
            try:
                await self._advance(folder)
            except (DaylightError, OSError, ValueError) as error:
                _log.warning("attempt %s could not be submitted: %s", key, error)
            if (known := read_submission(folder)) is not None and known.delayed:
                self._timer.tried(queue)
                return

    async def _advance(self, folder: AttemptFolder) -> None:
        known = read_submission(folder)
        if known is None or not known.delayed:
            return
        if known.cancelled:
            await self._call_off(folder)
        else:
            await self._submit(await asyncio.to_thread(folder.job), await asyncio.to_thread(folder.token))

    async def _call_off(self, folder: AttemptFolder) -> None:
        """End a gang that was cancelled before sbatch had answered; if Slurm has a job of it after all, cancel that."""
        async with locked(folder):
            known = read_submission(folder)
            if known is None or not known.delayed:
                return
            found = (await self._controller.fresh()).find("", known.comment)
            if found is None:
                outcome = Outcome.RELEASED if known.cancelled == "release" else Outcome.KILLED
                write_submission(folder, known.ended(outcome))
                return
            write_submission(folder, known.model_copy(update={"job": found.id}))
            with contextlib.suppress(SlurmRefused):  # it has ended
                await run("scancel", found.id)


def _active(queue: Queue) -> int:
    return sum(job.state not in ENDED for job in queue.jobs.values())
