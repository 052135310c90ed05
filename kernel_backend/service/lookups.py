"""Look up facts in users' files in threads, and cache the results, since a user's disk or agent may be slow."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import NamedTuple

from kernel_backend.service.isolation import ROUND_WAIT_S

FRESH_S = 5.0  # age at which an answer is looked up again; until then, and during the lookup, the old one is returned
AT_ONCE = 8  # threads per owner; further lookups are queued
_log = logging.getLogger(__name__)

Find = Callable[[], str]


class _Answer(NamedTuple):
    text: str
    at: float  # by time.monotonic()


class _Question(NamedTuple):
    key: Hashable
    find: Find
    done: Future[None]


class Lookups:
    """Cache of texts that threads find in users' files, such as why a trial must wait; reading the files may be slow.

    `wake` is called in the event loop when the result for a key has changed.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._guard = threading.Lock()
        self._answers: dict[Hashable, _Answer] = {}
        self._under_way: set[Hashable] = set()
        self._lines: defaultdict[str, deque[_Question]] = defaultdict(deque)  # queued lookups, by owner
        self._threads: defaultdict[str, int] = defaultdict(int)  # number of threads, by owner
        self._first: list[Future[None]] = []  # lookups of keys that have no answer yet
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Remember the running event loop, in which threads will call `wake`."""
        self._loop = asyncio.get_running_loop()

    @property
    def unsettled(self) -> bool:
        """Return whether, since the last `settle`, a lookup was started for a key that has no result yet."""
        return bool(self._first)

    def answer(self, owner: str, key: Hashable, find: Find) -> str | None:
        """Return the cached result for a key, None if there is none yet; start a lookup if it is missing or old.

        Does not block: a thread calls `find`, which returns the result. `owner` is the user whose files it reads; at
        most `AT_ONCE` threads run per owner.
        """
        with self._guard:
            known = self._answers.get(key)
            if key not in self._under_way and (known is None or time.monotonic() - known.at > FRESH_S):
                question = _Question(key, find, Future())
                if known is None:
                    self._first.append(question.done)
                self._begin(owner, question)
        return None if known is None else known.text

    def forget(self, key: Hashable) -> None:
        """Drop the cached result for a key, so that the next `answer` starts a lookup."""
        with self._guard:
            self._answers.pop(key, None)

    async def settle(self) -> None:
        """Wait up to `ROUND_WAIT_S` seconds for lookups of keys that have no result yet.

        On a healthy disk they end sooner, so that the caller has the results in the same round of the control loop.
        """
        with self._guard:
            first, self._first = self._first, []
        waited = [asyncio.wrap_future(each) for each in first if not each.done()]
        if waited:
            await asyncio.wait(waited, timeout=ROUND_WAIT_S)

    def _begin(self, owner: str, question: _Question) -> None:
        self._under_way.add(question.key)
        self._lines[owner].append(question)
        if self._threads[owner] < AT_ONCE:
            self._threads[owner] += 1
            # No thread pool: at exit the process would wait for its threads, and a download may take long.
            threading.Thread(target=self._work, args=(owner,), daemon=True).start()

    def _work(self, owner: str) -> None:
        while (question := self._next(owner)) is not None:
            try:
                text = question.find()
            except Exception as error:  # any error is reported by the trial that waits for the answer
                _log.exception("what %s waits for cannot be found out", question.key)
                text = f"{type(error).__name__}: {error}; this is tried again"
            self._take(question, text)

    def _next(self, owner: str) -> _Question | None:
        with self._guard:
            if line := self._lines[owner]:
                return line.popleft()
            del self._lines[owner]
            self._threads[owner] -= 1
            if not self._threads[owner]:
                del self._threads[owner]
            return None

    def _take(self, question: _Question, text: str) -> None:
        with self._guard:
            before = self._answers.get(question.key)
            self._answers[question.key] = _Answer(text, time.monotonic())
            self._under_way.discard(question.key)
        question.done.set_result(None)
        if (before is None or before.text != text) and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)
