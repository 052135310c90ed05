"""Wait for what happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 120.0


def until(look: Callable[[], T | bool | None], what: str, patience: float = PATIENCE_S) -> T:
    """Wait until `look` returns a true value, and return it; the pauses between calls grow."""
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < patience:
        value = look()
        if value:
            return value  # type: ignore[return-value]
        time.sleep(min(max(0.05, waited / 20), 0.5))
    raise AssertionError(f"did not happen in {waited:.0f} s: {what}")
