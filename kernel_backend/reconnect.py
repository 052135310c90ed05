"""Retry requests of a client whose service does not answer, with growing pauses and a message to the user."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from kernel_backend.errors import ServiceUnreachable
from kernel_backend.retry import RetryPolicy

SILENCE_S = 3.0  # seconds of retries before a message is shown
RETRY = RetryPolicy((0.05, 0.1, 0.2, 0.5, 1.0, 2.0))

Say = Callable[[str], None]


def remedy() -> str:
    """Return advice for a user whose service does not answer: start it, or tell the hub's admins."""
    url = os.environ.get("DAYLIGHT_URL")
    return f"the hub runs it, at {url}: try again later, or tell its admins" if url else "start it with: daylight serve"


def to_stderr(text: str) -> None:
    """Print a message to standard error, which the user sees in the terminal or below the notebook cell."""
    print(text, file=sys.stderr, flush=True)


class Reconnection:
    """Pauses between retries of a request, each longer than the last; a message is printed after some seconds."""

    def __init__(self, seconds: float, say: Say) -> None:
        self._began = time.monotonic()
        self._seconds, self._say = seconds, say
        self._waits, self._said = replace(RETRY, limit=seconds).waits(), False

    def wait(self, error: Exception) -> None:
        """Sleep until the next retry; raise ServiceUnreachable, from `error`, when the time is used up."""
        pause = next(self._waits, None)
        if pause is None:
            raise _unreachable(error) from error
        waited = time.monotonic() - self._began
        if waited >= SILENCE_S and not self._said:
            self._said = True
            self._say(f"Daylight's service does not answer; trying again for {self._seconds - waited:.0f} s")
        time.sleep(pause)


def _unreachable(error: Exception) -> ServiceUnreachable:
    if isinstance(error, ServiceUnreachable):
        return error
    reason = str(error) or type(error).__name__
    return ServiceUnreachable(f"Daylight's service does not answer ({reason}): {remedy()}")
