"""Test that a notifier wakes all waiting tasks, and that cancelled tasks stay cancelled."""

from __future__ import annotations

import asyncio

from kernel_backend.service.notifier import Notifier, wait_for


def test_a_ring_is_heard_and_silence_has_an_end():
    async def listen() -> tuple[bool, bool]:
        bus = Notifier()
        event = bus.listen()
        bus.notify()
        return await wait_for(event, 10), await wait_for(bus.listen(), 0.01)

    assert asyncio.run(listen()) == (True, False)


def test_a_cancellation_is_not_lost_to_a_ring_at_the_same_moment():
    async def cancelled() -> bool:
        event = asyncio.Event()
        waiting = asyncio.create_task(wait_for(event, 3600))
        await asyncio.sleep(0.01)
        event.set()
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled()

    assert asyncio.run(cancelled())
