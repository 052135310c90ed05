"""Wait for what happens, the longer the more this machine has to do besides."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 120.0


def until(look: Callable[[], T | bool | None], what: str, patience: float = PATIENCE_S) -> T:
    """Wait until `look` returns a true value, and return it; the pauses between calls grow.

    `patience` is in seconds of a machine that has a core for each process that wants one.
    """
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < patience * starvation():
        value = look()
        if value:
            return value  # type: ignore[return-value]
        time.sleep(min(max(0.05, waited / 20), 0.5))
    raise AssertionError(f"did not happen in {waited:.0f} s: {what}")


def starvation() -> float:
    """Return how many processes share each core of this machine: from 1 to 8, beyond which a test is given up."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 8.0)
