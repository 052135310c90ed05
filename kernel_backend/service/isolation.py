"""Run work for each experiment in a task of its own, so that an error or a slow disk delays only that experiment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from kernel_backend.errors import DaylightError
from kernel_backend.retry import RetryPolicy, exponential

RETRY = RetryPolicy(exponential(2.0, 60.0))  # of an experiment's work that has failed
ROUND_WAIT_S = 1.0  # how long a round waits for an experiment's files and gangs before it goes on with others

Work = Callable[[], Coroutine[Any, Any, None]]

_log = logging.getLogger(__name__)


class IsolatedTasks:
    """Runner of asynchronous work for experiments; each experiment has at most one task at a time.

    The methods that run work wait only a limited time; if a task ends after that, `wake` is called. `failed` is called
    after each error.
    """

    def __init__(self, wake: Callable[[], None], failed: Callable[[], None]) -> None:
        self._wake, self._failed = wake, failed
        self._under_way: dict[int, asyncio.Task[None]] = {}  # running tasks, by experiment
        self._failures: dict[str, tuple[float, int]] = {}  # earliest time of the next try, and the number of failures

    def under_way(self, number: int) -> bool:
        """Return whether work on experiment `number` is still running."""
        return number in self._under_way

    async def retried(self, number: int, what: str, work: Work) -> None:
        """Run `work` on experiment `number` and wait at most `ROUND_WAIT_S`; slower work continues in the background.

        Does nothing while earlier work on that experiment runs. After an error, the work named `what` is skipped until
        a wait is over. `what` also names the work in the log.
        """
        await self.together({number: [(what, work)]})

    async def together(self, work: Mapping[int, Sequence[tuple[str, Work]]]) -> None:
        """Run work for several experiments concurrently, and wait at most `ROUND_WAIT_S` for all of it.

        `work` maps the number of an experiment to its work, in order: pairs of (name for the log, coroutine function).
        Experiments whose earlier work still runs are skipped.
        """
        tasks = [self._begin(number, objects) for number, objects in work.items() if number not in self._under_way]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=ROUND_WAIT_S)
        for task in tasks:
            if not task.done():
                task.add_done_callback(lambda _: self._wake())

    def _begin(self, number: int, objects: Sequence[tuple[str, Work]]) -> asyncio.Task[None]:
        task = self._under_way[number] = asyncio.create_task(self._work(objects), name=objects[0][0])
        task.add_done_callback(lambda _: self._under_way.pop(number, None))
        return task

    @property
    def troubled(self) -> bool:
        """Return whether there is any work whose last try has failed."""
        return bool(self._failures)

    def due(self, what: str) -> bool:
        """Return whether the work named `what` may run: its last try succeeded, or its wait after an error is over."""
        again, _ = self._failures.get(what, (0.0, 0))
        return time.monotonic() >= again

    @contextlib.contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Catch and log errors of the work named `what`, which then must wait before it is `due` again.

        Each failure in a row lengthens the wait.
        """
        try:
            yield
        except Exception as error:
            expected = isinstance(error, DaylightError)
            _log.error("%s: %s; this is tried again", what, error, exc_info=None if expected else error)
            _, before = self._failures.get(what, (0.0, 0))
            self._failures[what] = time.monotonic() + RETRY.pause(before + 1), before + 1
            self._failed()
        else:
            self._failures.pop(what, None)

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in list(self._under_way.values()):
            task.cancel()

    async def _work(self, objects: Sequence[tuple[str, Work]]) -> None:
        await asyncio.gather(*(self._one(what, work) for what, work in objects))

    async def _one(self, what: str, work: Work) -> None:
        if self.due(what):
            with self.errors(what):
                await work()
