"""Read users' files in threads and answer from a cache: their disks or agents may be slow."""

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

FRESH_S = 5.0  # after which an answer is looked up again; it counts until the next one has come
AT_ONCE = 8  # threads per owner; further questions wait
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
    """Cache answers of slow lookups in users' files, made in threads.

    `wake` is called in the event loop when an answer has changed.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._guard = threading.Lock()
        self._answers: dict[Hashable, _Answer] = {}
        self._under_way: set[Hashable] = set()
        self._lines: defaultdict[str, deque[_Question]] = defaultdict(deque)  # by owner: not started yet
        self._threads: defaultdict[str, int] = defaultdict(int)  # by owner
        self._first: list[Future[None]] = []  # of keys that had no answer yet
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Record the running event loop."""
        self._loop = asyncio.get_running_loop()

    @property
    def unsettled(self) -> bool:
        """Return whether any key was looked up for the first time since the last `settle`."""
        return bool(self._first)

    def answer(self, owner: str, key: Hashable, find: Find) -> str | None:
        """Return the cached answer for a key, None before the first; start a lookup by `find` if it is stale.

        Does not block. `owner` is the user whose files are read, with at most `AT_ONCE` threads.
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
        """Drop the cached answer for a key: the next `answer` starts a lookup."""
        with self._guard:
            self._answers.pop(key, None)

    async def settle(self) -> None:
        """Wait up to `ROUND_WAIT_S` for the answers of first lookups: a healthy disk answers in time."""
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
            # Not a pool's: on exit a service waits for those, and a download may take long.
            threading.Thread(target=self._work, args=(owner,), daemon=True).start()

    def _work(self, owner: str) -> None:
        while (question := self._next(owner)) is not None:
            try:
                text = question.find()
            except Exception as error:  # whatever it is, the trial that waits for it reports it
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
