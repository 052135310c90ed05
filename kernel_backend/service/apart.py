"""What a round does about one experiment, apart from all the others: neither its errors nor its waiting are theirs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from kernel_backend.errors import DaylightError

MOMENT_S = 1.0  # that a round waits for files and gangs of an experiment, before it goes on without

Work = Callable[[], Coroutine[Any, Any, None]]

_log = logging.getLogger(__name__)


class Apart:
    """`wake` is called when something is done for which a round did not wait, `failed` after each error."""

    def __init__(self, wake: Callable[[], None], failed: Callable[[], None]) -> None:
        self._wake, self._failed = wake, failed
        self._under_way: dict[int, asyncio.Task[None]] = {}  # what is being done about experiments

    def under_way(self, number: int) -> bool:
        """Whether something is being done about this experiment for which no round waits."""
        return number in self._under_way

    async def patiently(self, number: int, what: str, work: Work) -> None:
        """Do what an experiment's files, or its gang, are needed for: should these let us wait, rounds go on without.

        Until it is done nothing else is done about that experiment.
        """
        if number in self._under_way:
            return
        task = self._under_way[number] = asyncio.create_task(self._work(what, work), name=what)
        task.add_done_callback(lambda _: self._under_way.pop(number, None))
        await asyncio.wait({task}, timeout=MOMENT_S)
        if not task.done():
            task.add_done_callback(lambda _: self._wake())

    @contextlib.contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Keep an error from everything but what it befell: it is logged, and the next round tries again."""
        try:
            yield
        except Exception as error:
            expected = isinstance(error, DaylightError)
            _log.error("%s: %s; this is tried again", what, error, exc_info=None if expected else error)
            self._failed()

    def cancel(self) -> None:
        """Let go of all that is under way."""
        for task in list(self._under_way.values()):
            task.cancel()

    async def _work(self, what: str, work: Work) -> None:
        with self.errors(what):
            await work()
