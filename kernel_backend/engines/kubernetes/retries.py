"""Submit gangs again, in order, if Kubernetes did not accept them, or if their submission was interrupted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from kernel_backend.engines.kubernetes.submission import Submission
from kernel_backend.errors import DaylightError
from kernel_backend.model.ids import AttemptId

RETRY_S = 5.0  # between tries of the gang that waits longest
CUT_S = 30.0  # after which a submission without an answer counts as cut
FIRST_S, MOST_S = 30.0, 600.0  # pauses of a trial of which only a part of a gang found nodes
_log = logging.getLogger(__name__)

Submissions = Mapping[AttemptId, Submission]
Advance = Callable[[AttemptId], Awaitable[bool]]  # submits a gang again; returns whether it is accepted, or has ended


def in_order(submissions: Submissions, now: float) -> list[AttemptId]:
    """Return the gangs that must be submitted again, the oldest submission first.

    A gang whose first submission may still be in progress is left out.
    """
    found = [
        (each.at, key)
        for key, each in submissions.items()
        if each.delayed and (each.delay or each.cancelled or now > each.at + CUT_S)
    ]
    return [key for _, key in sorted(found)]


class Pauses:
    """Pauses of trials, during which no gang of the trial is submitted.

    A trial is paused if only some pods of its gang found nodes, so that others can use these nodes.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[int, int], tuple[float, float, str]] = {}  # by trial: end, length, reason

    def begin(self, key: AttemptId, reason: str) -> None:
        """Pause the trial of an attempt, for twice as long as its previous pause (30 s at first, 10 min at most)."""
        _, length, _ = self._until.get((key.experiment, key.trial), (0.0, FIRST_S / 2, ""))
        length = min(MOST_S, 2 * length)
        self._until[key.experiment, key.trial] = time.monotonic() + length, length, reason

    def reason(self, key: AttemptId) -> str:
        """Return why the trial of an attempt is paused now; "" if it is not."""
        until, _, reason = self._until.get((key.experiment, key.trial), (0.0, 0.0, ""))
        return reason if time.monotonic() < until else ""

    def end(self, key: AttemptId) -> None:
        """Forget the pauses of an attempt's trial, because all pods of its gang have found nodes.

        The trial's next pause before a gang is submitted again is as short as the first.
        """
        self._until.pop((key.experiment, key.trial), None)


class Retries:
    """Task that submits the waiting gangs of a pool again, one after another."""

    def __init__(self, advance: Advance, pauses: Pauses) -> None:
        self._advance, self._pauses = advance, pauses
        self._task: asyncio.Task[None] | None = None
        self._again = 0.0

    def go_on(self, submissions: Submissions) -> None:
        """Start a task that submits waiting gangs again, if any waits and the next try is due.

        Nothing happens while an earlier task still runs. `submissions` are the records of gangs that have not ended.
        """
        keys = [key for key in in_order(submissions, time.time()) if self._is_due(key, submissions[key])]
        cancelled = any(submissions[key].cancelled for key in keys)
        if keys and (self._task is None or self._task.done()) and (cancelled or time.monotonic() >= self._again):
            self._task = asyncio.create_task(self._all(keys), name="gangs that wait for Kubernetes")

    def _is_due(self, key: AttemptId, submission: Submission) -> bool:
        return bool(submission.cancelled) or not self._pauses.reason(key)

    async def _all(self, keys: list[AttemptId]) -> None:
        """Submit gangs again in this order until one is not accepted, so that later gangs do not overtake it."""
        for key in keys:
            try:
                if await self._advance(key):
                    continue
            except (DaylightError, OSError, ValueError) as error:
                _log.warning("attempt %s could not be submitted: %s", key, error)
            self._again = time.monotonic() + RETRY_S
            return
