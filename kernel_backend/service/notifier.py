"""Wake tasks that wait for news; the news itself is always read from the store, so none is lost."""

from __future__ import annotations

import asyncio


class Notifier:
    """Notifier: `ring` wakes all tasks that wait at that time."""

    def __init__(self) -> None:
        self._bell = asyncio.Event()

    def ring(self) -> None:
        """Wake all waiting tasks."""
        self._bell.set()
        self._bell = asyncio.Event()

    def listen(self) -> asyncio.Event:
        """Return an event that the next `ring` sets.

        Take it before reading and wait on it after, so that nothing is missed.
        """
        return self._bell


async def heard(bell: asyncio.Event, timeout: float) -> bool:
    """Wait for the event up to `timeout` seconds; return whether it was set."""
    try:
        # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
        async with asyncio.timeout(timeout):
            await bell.wait()
    except TimeoutError:
        return False
    return True
