"""Submit gangs again that sbatch has not accepted.

The user had too many jobs in the queue, or Slurm did not answer.
"""

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
    """Return the gangs that sbatch has not accepted yet, cancelled ones included, oldest submission first."""
    found = [(each.at, key) for key, each in submissions.items() if each is not None and each.delayed]
    return [key for _, key in sorted(found)]


class RetryTimer:
    """Timer that says when to try again to submit the delayed gangs.

    A try is due as soon as jobs have left the queue or Slurm answers again, else RETRY_S seconds after the last try.
    """

    def __init__(self) -> None:
        self._again, self._active = 0.0, 0

    def due(self, queue: Queue) -> bool:
        """Return whether the gangs should be submitted now; False while Slurm does not answer."""
        if queue.problem:
            self._again = 0.0
            return False
        return time.monotonic() >= self._again or _active(queue) < self._active

    def tried(self, queue: Queue) -> None:
        """Record that a try has failed, with Slurm's queue at that time, so that `due` notices when jobs leave it."""
        self._again, self._active = time.monotonic() + RETRY_S, _active(queue)


class DelayedGangs:
    """Gangs of a pool that sbatch has not accepted yet; their records in the attempts' folders survive a restart."""

    def __init__(
        self, folders: GangFolders, controller: Controller, submit: Callable[[LaunchSpec, str], Awaitable[None]]
    ) -> None:
        self._folders, self._controller, self._submit = folders, controller, submit
        self._timer, self._tasks = RetryTimer(), set[asyncio.Task[None]]()

    @staticmethod
    def reason(unended: Callable[[], Submissions]) -> str:
        """Return why earlier gangs wait to be submitted, so that a new gang must wait behind them; "" if none waits.

        `unended` returns the records of gangs that have not ended.
        """
        waiting = unended()
        return next((each.delay for key in in_order(waiting) if (each := waiting[key]) and not each.cancelled), "")

    def advance(self, submissions: Submissions, queue: Queue) -> None:
        """Start a task that submits the delayed gangs again, unless it still runs or the next try is not due yet."""
        keys = in_order(submissions)
        cancelled = any(each.cancelled for key in keys if (each := submissions[key]) is not None)
        if keys and not self._tasks and (self._timer.due(queue) or (cancelled and not queue.problem)):
            task = asyncio.create_task(self._submit_all(keys, queue), name="delayed gangs")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _submit_all(self, keys: Sequence[AttemptId], queue: Queue) -> None:
        """Submit these gangs in order until Slurm does not accept one; record the end of gangs that were cancelled."""
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
        """Record the end of a gang that was cancelled before Slurm had accepted it.

        If it turns out that Slurm has a job of the gang, this job is cancelled instead.
        """
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
