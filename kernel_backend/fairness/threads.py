"""Share a pool of threads among the callers of a service, so that the slow requests of one do not delay others'."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

THREADS = 128  # threads that wait for files or databases
SHARE = 8  # of them for one caller: few enough that many callers at once find a connection to the database

CALLER: ContextVar[str] = ContextVar("caller", default="")  # who makes the present request; "": the service itself


class FairThreads(ThreadPoolExecutor):
    """Executor in which the works of one caller (`CALLER`) have at most `share` threads; the others wait in order."""

    def __init__(self, threads: int = THREADS, share: int = SHARE) -> None:
        super().__init__(threads, "service")
        self._share, self._lock = share, threading.Lock()
        self._running = Counter[str]()
        self._waiting: dict[str, deque[_Work]] = {}

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Run `function(*args, **options)` in a thread, as soon as the caller has one."""
        caller, work = CALLER.get(), _Work(Future(), partial(function, *args, **options))
        if not caller:
            return super().submit(work.function)
        with self._lock:
            if self._running[caller] >= self._share:
                self._waiting.setdefault(caller, deque()).append(work)
                return work.future
            self._running[caller] += 1
        super().submit(self._serve, caller, work)
        return work.future

    def _serve(self, caller: str, work: _Work) -> None:
        work.run()
        if (following := self._following(caller)) is None:
            return
        try:
            super().submit(self._serve, caller, following)  # behind the works of others
        except RuntimeError:  # shut down
            while following is not None:
                following.future.cancel()
                following = self._following(caller)

    def _following(self, caller: str) -> _Work | None:
        """Return the caller's next work; None, with the thread given back, if there is none."""
        with self._lock:
            if waiting := self._waiting.get(caller):
                return waiting.popleft()
            self._waiting.pop(caller, None)
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]
            return None


class _Work(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
