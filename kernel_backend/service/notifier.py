"""Wake tasks that wait for changes in the store, which they then read there: an event carries no data."""

from __future__ import annotations

import asyncio


class Notifier:
    """Source of events for tasks that wait for changes in the store; `notify` wakes all tasks that are waiting."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        self._event.set()
        self._event = asyncio.Event()

    def listen(self) -> asyncio.Event:
        """Return an event that the next call of `notify` sets.

        To miss no change, call this before reading the store, and wait for the event after reading.
        """
        return self._event


async def wait_for(event: asyncio.Event, timeout: float) -> bool:
    """Wait for the event up to `timeout` seconds; return whether it was set."""
    try:
        # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that arrives together with the event.
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True
