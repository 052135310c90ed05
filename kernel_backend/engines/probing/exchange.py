"""Collect the answers of a check's probe programs, and order the tests that several nodes must run at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError

from kernel_backend.engines.probing.network_finding import address_to_use
from kernel_backend.launch.joining import PROBE_S
from kernel_backend.model.launch.nodes import usable_addresses
from kernel_backend.model.launch.probe import AllReduceOrder, NodeProbe, PeerAddresses

FILES_S = 20.0  # time for the answers about files and the service
REACH_S = 5.0  # time for the answers about addresses, besides PROBE_S for each address
ALL_REDUCE_S = 60.0  # time for the all-reduce, including the import of torch

Order = PeerAddresses | AllReduceOrder
Send = Callable[[Order], Awaitable[None]]


class ProbeExchange:
    """Answers of the probe programs of one check, and the order of the tests in which several nodes take part.

    How answers and orders are transported (such as through srun) is up to the engine.
    """

    def __init__(self, nodes: int, interface: str | None) -> None:
        """Expect answers of `nodes` nodes; with `interface`, only addresses of that network device are tested."""
        self._nodes, self._interface = nodes, interface
        self._parts: dict[int, dict[str, Any]] = {}
        self._changed, self._over = asyncio.Event(), False
        self._begun, self._sent = time.monotonic(), 0.0
        self.started: float | None = None  # seconds until the first answer; None without one

    def begin(self) -> None:
        """Start measuring the time until the first answer."""
        self._begun = time.monotonic()

    def take(self, node: int, part: Mapping[str, Any]) -> None:
        """Store answers (`part`) of a node, given by its number; answers that it has sent before are ignored.

        Probe programs may send the same answers several times, since they repeat their calls.
        """
        if self.started is None:
            self.started = time.monotonic() - self._begun
        known = self._parts.setdefault(node, {})
        if new := {name: value for name, value in part.items() if name not in known}:
            timed = {"sent": self._sent, "received": time.time()} if "clock" in new else {}
            known.update(new, **timed)
            self.notify()

    def end(self) -> None:
        """End the check: all methods that wait for answers return at once."""
        self._over = True
        self.notify()

    def notify(self) -> None:
        """Wake the tasks that wait for new answers or orders."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def answers(self) -> list[NodeProbe]:
        """Return the answers of each node so far, in order of node numbers; invalid ones are left out."""
        return [_probe(node, self._parts[node]) for node in sorted(self._parts)]

    async def first_answers(self, nodes: int, seconds: float) -> bool:
        """Wait up to `seconds` until `nodes` nodes have sent at least a first answer; return whether any has."""
        await self.until(lambda: len(self._parts) >= nodes, seconds)
        return bool(self._parts)

    async def orders(self, send: Send) -> None:
        """Order all nodes to connect to node 0, and then to run an all-reduce at an address that all have reached.

        `send` gives an order to all nodes.
        """
        if not await self._answered("addresses", FILES_S):
            return
        first = self.answers()[0]
        addresses = usable_addresses(first.addresses, self._interface)
        self._sent = time.time()
        await send(PeerAddresses(addresses=addresses, port=first.probe_port))
        reached = await self._answered("reached", REACH_S + PROBE_S * len(addresses))
        address = address_to_use(self.answers(), self._interface) if reached and self._nodes > 1 else ""
        await send(AllReduceOrder(address=address, port=first.torch_port))
        if address:
            await self._answered("all_reduce", ALL_REDUCE_S)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, but at most `seconds`, or until the check ends; return whether it holds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._over:
                    changed = self._changed
                    if condition():
                        break
                    await changed.wait()
        return condition()

    async def _answered(self, part: str, seconds: float) -> bool:
        """Wait until all nodes have sent the answer `part`, such as `reached`; return whether they have.

        The wait takes up to `seconds`.
        """
        nodes = range(self._nodes)
        return await self.until(lambda: all(part in self._parts.get(node, ()) for node in nodes), seconds)


def _probe(node: int, parts: Mapping[str, Any]) -> NodeProbe:
    found = NodeProbe(node=node)
    for name, value in parts.items():
        with contextlib.suppress(ValidationError):
            found = NodeProbe.model_validate(found.model_dump() | {name: value})
    return found
