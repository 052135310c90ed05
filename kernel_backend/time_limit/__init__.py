"""Limit the processor time of work that nothing else interrupts, such as a search for a user's regular expression."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

PATTERN_S = 2.0  # for a user's pattern in a piece of a log: an ordinary one takes milliseconds


class TookTooLong(Exception):
    """Error: the work has taken more processor time than it may."""


@contextlib.contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the block once this process has computed for `seconds` in it; for the main thread only.

    Regular expressions handle signals while they search. Time for which the process waits does not count.
    """
    running = True

    def late(*_: object) -> None:
        if running:  # a signal may be handled after the block
            raise TookTooLong

    before = signal.signal(signal.SIGVTALRM, late)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
