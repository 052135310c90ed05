"""Limit the time for which code of a job's values may run when they are read in the notebook."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from kernel_backend.errors import InvalidRequest

READ_S = 300.0  # values of a gigabyte take seconds


@contextlib.contextmanager
def limited(seconds: float, then: str) -> Iterator[Callable[[], object]]:
    """Raise InvalidRequest in the `with` block once it has taken this long; `then` says what to do.

    The function that the block gets begins the time anew, as while bytes arrive. Only the main thread, in which a
    kernel runs cells, has a limit: no other gets signals.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield lambda: None
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise InvalidRequest(f"the values were not read within {seconds:g} s: {then}")

    before = signal.signal(signal.SIGALRM, end)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)
