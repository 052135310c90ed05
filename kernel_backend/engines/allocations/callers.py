"""Serve the holders of kept allocations that call the service (as those in pods do), to report and to get orders."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from kernel_backend.errors import Unauthenticated
from kernel_backend.model.launch.holder import HolderOrders, HolderReport
from kernel_backend.model.launch.launch_spec import token_digest

SLICE_S = 1.0  # for which one engine is asked for orders


@runtime_checkable
class CalledEngine(Protocol):
    """Engine that keeps allocations whose holder processes send HTTP requests to the service."""

    def holder_digest(self, id: str) -> str:
        """Return the digest of the token by which an allocation's holders authenticate; "" if it is unknown."""

    async def holder_report(self, id: str, report: HolderReport) -> HolderOrders:
        """Store the events that a holder reports, and return its orders after at most `report.wait` seconds.

        Raises PlaceUnavailable if the events cannot be stored, and Conflict if the holder must not start a gang.
        """


class CallingHolders:
    """Receiver of requests from holders: it passes each on to the engine of the pool that keeps the allocation."""

    def __init__(self, engines: Callable[[], Mapping[str, object]]) -> None:
        """Create the receiver; `engines` returns the engines that keep allocations, by name of the pool."""
        self._engines = engines

    def check(self, id: str, token: str) -> None:
        """Raise Unauthenticated unless there is an allocation with this id and this is its token."""
        self._engine(id, token)

    async def report(self, id: str, token: str, report: HolderReport) -> HolderOrders:
        """Store the events that a holder reports, and return its orders after at most `report.wait` seconds.

        Raises Unauthenticated, PlaceUnavailable if the events cannot be stored, and Conflict if the holder must not
        start a gang.
        """
        until = time.monotonic() + report.wait
        while True:
            # In slices: the pool may be replaced meanwhile, and with it the engine that gives the orders.
            wait = min(SLICE_S, max(0.0, until - time.monotonic()))
            found = await self._engine(id, token).holder_report(id, report.model_copy(update={"wait": wait}))
            if found.orders or time.monotonic() >= until:
                return found
            report = report.model_copy(update={"events": ()})

    def _engine(self, id: str, token: str) -> CalledEngine:
        given = token_digest(token).encode()
        for each in self._engines().values():
            if isinstance(each, CalledEngine) and hmac.compare_digest(each.holder_digest(id).encode(), given):
                return each
        raise Unauthenticated("no valid token: the allocation has ended, or it is another one's")
