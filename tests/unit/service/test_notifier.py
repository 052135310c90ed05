"""A bell wakes whoever listens, and who is cancelled meanwhile is cancelled."""

from __future__ import annotations

import asyncio

from kernel_backend.service.notifier import Notifier, heard


def test_a_ring_is_heard_and_silence_has_an_end():
    async def listen() -> tuple[bool, bool]:
        bus = Notifier()
        bell = bus.listen()
        bus.ring()
        return await heard(bell, 10), await heard(bus.listen(), 0.01)

    assert asyncio.run(listen()) == (True, False)


def test_a_cancellation_is_not_lost_to_a_ring_at_the_same_moment():
    async def cancelled() -> bool:
        bell = asyncio.Event()
        waiting = asyncio.create_task(heard(bell, 3600))
        await asyncio.sleep(0.01)
        bell.set()
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled()

    assert asyncio.run(cancelled())
