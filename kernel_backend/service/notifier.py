"""Wakes whoever waits for news; the news itself is always read from the store, so none is lost."""

from __future__ import annotations

import asyncio


class Notifier:
    """A bell: `ring` wakes all who wait at that moment."""

    def __init__(self) -> None:
        self._bell = asyncio.Event()

    def ring(self) -> None:
        """Something became known."""
        self._bell.set()
        self._bell = asyncio.Event()

    def listen(self) -> asyncio.Event:
        """An event that the next ring sets: take it before looking, wait on it after, and nothing is missed."""
        return self._bell


async def heard(bell: asyncio.Event, timeout: float) -> bool:
    """Whether the bell rang within `timeout` seconds."""
    try:
        # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the ring.
        async with asyncio.timeout(timeout):
            await bell.wait()
    except TimeoutError:
        return False
    return True
