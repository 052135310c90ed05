"""Serve the probe programs of a pool's check that call the service, as those in pods do: take answers, give orders."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_backend.engines.probing.exchange import Order, ProbeExchange
from kernel_backend.errors import Unauthenticated
from kernel_backend.model.launch.probe import AllReduceOrder, PeerAddresses, ProbeOrders, ProbeReport


class CalledCheck:
    """Check in progress whose probe programs call the service: its token, and the orders given so far."""

    def __init__(self, exchange: ProbeExchange) -> None:
        self.token = secrets.token_urlsafe(32)
        self._exchange, self._orders = exchange, ProbeOrders()

    async def send(self, order: Order) -> None:
        """Give an order to the probe programs on all nodes: each gets it in reply to its current or next request."""
        if isinstance(order, PeerAddresses):
            self._orders = self._orders.model_copy(update={"peer": order})
        elif isinstance(order, AllReduceOrder):
            self._orders = self._orders.model_copy(update={"all_reduce": order})
        self._exchange.notify()

    async def report(self, report: ProbeReport) -> ProbeOrders:
        """Store a node's answers, and return all orders of the check.

        It returns as soon as there is an order that the node's probe program does not have yet, at the latest after
        `report.wait` seconds.
        """
        self._exchange.take(report.node, report.answers)
        await self._exchange.until(lambda: self._orders.count > report.orders, report.wait)
        return self._orders


class CallingProbes:
    """Checks in progress, by id, whose probe programs send answers to the service and get orders in return."""

    def __init__(self) -> None:
        self._checks: dict[str, CalledCheck] = {}

    @contextmanager
    def opened(self, check: str, exchange: ProbeExchange) -> Iterator[CalledCheck]:
        """Accept calls of a check's probe programs until the `with` block ends; yield the check.

        `check` is the id of the check, and `exchange` collects the answers.
        """
        self._checks[check] = found = CalledCheck(exchange)
        try:
            yield found
        finally:
            del self._checks[check]
            exchange.end()

    def check(self, check: str, token: str) -> None:
        """Raise Unauthenticated unless a check with this id is in progress and this is its token."""
        found = self._checks.get(check)
        if found is None or not hmac.compare_digest(found.token.encode(), token.encode()):
            raise Unauthenticated("no valid token: the check has ended, or it is another one's")

    async def report(self, check: str, report: ProbeReport) -> ProbeOrders:
        """Store the answers of a node's probe program, and return the orders after at most `report.wait` seconds."""
        return await self._checks[check].report(report)
