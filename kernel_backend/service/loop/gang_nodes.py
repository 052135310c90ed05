"""Coordinate the launchers of a gang's nodes: their ranks start together, and all end if those of one node fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from kernel_backend import __version__
from kernel_backend.lifecycle.joining import Impossible, Joined, Wanted, joined, wrong_clocks
from kernel_backend.model import events as e
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.nodes import GangNode, JoinAnswer, NodeOffer, NodeOrder, NodeState
from kernel_backend.model.node_faults import FaultKind, NodeFault, NodeName, node_fault
from kernel_backend.model.states import AttemptState, TrialState
from kernel_backend.model.trial import Attempt
from kernel_backend.service.notifier import Notifier, wait_for
from kernel_backend.store.base import Store

LOOK_S = 5.0  # between checks of an attempt whose launcher waits for news
SILENT_S = 90.0  # time without a message from a node, while others send some, after which the node counts as lost
CLOCK_S = 5.0  # difference between clocks that is reported as a fault

Settings = Callable[[str], PoolSettings | None]  # settings of a pool, by name
Blame = Callable[[Iterable[NodeFault]], Awaitable[frozenset[NodeName]]]  # stores faults; returns nodes now left out


@dataclass
class _Gang:
    """State of a gang's launchers, from their messages; after a restart of the service, new messages restore it."""

    began: float  # monotonic time of the first launcher's first request
    complete: float | None = None  # monotonic time at which the last launcher joined
    offers: dict[int, NodeOffer] = field(default_factory=dict)
    refused: JoinAnswer | None = None
    heard: dict[int, float] = field(default_factory=dict)  # monotonic time of each node's last message
    ended: set[int] = field(default_factory=set)
    broken: dict[int, str] = field(default_factory=dict)
    changed: Notifier = field(default_factory=Notifier)


class GangNodes:
    """Handler of requests by the launchers of gangs whose nodes an external queue, such as Slurm's, has chosen."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        bus: Notifier,
        wake: Callable[[], None],
        blame: Blame,
        data_note: Callable[[Attempt], str] = lambda attempt: "",
    ) -> None:
        """Create the handler; `data_note` returns a note on an attempt whose nodes have its data, and may block."""
        self._data_note = data_note
        self._store, self._settings, self._bus, self._wake, self._blame = store, settings, bus, wake, blame
        self._gangs: dict[AttemptId, _Gang] = {}
        self._lock = asyncio.Lock()  # held during a decision, so that each one is stored once

    async def join(self, key: AttemptId, offer: NodeOffer) -> JoinAnswer:
        """Record that a launcher offers its node for a gang, and return whether its ranks may start.

        Ranks may start (`go`) once the offered nodes have enough slots; the nodes of the gang are then stored.
        """
        async with self._lock:
            attempt = await asyncio.to_thread(self._store.attempt, key)
            over = await self._over(attempt)
            if over is not None:
                self._gangs.pop(key, None)
                return over
            if attempt.nodes:
                return _again(attempt.nodes, offer)
            if attempt.state is not AttemptState.PENDING:
                return JoinAnswer(action="leave", reason=f"attempt {key} has begun without nodes that join")
            gang = self._gangs.setdefault(key, _Gang(time.monotonic()))
            if gang.refused is not None:
                return gang.refused
            return await self._decide(attempt, gang, offer)

    async def state(self, key: AttemptId, state: NodeState) -> NodeOrder:
        """Record the state of a node's ranks, which its launcher has sent, and return what the launcher must do.

        Waits for at most `state.wait` seconds, and returns earlier if the launcher must exit, since the attempt is
        over, or must end its ranks, since ranks on another node have failed. Otherwise the launcher is to continue.
        Does not wait if the node's ranks have ended.
        """
        gang = self._gangs.setdefault(key, _Gang(time.monotonic()))
        self._take(gang, state)
        deadline = time.monotonic() + state.wait
        while True:
            changed = gang.changed.listen()
            attempt = await asyncio.to_thread(self._store.attempt, key)
            if (over := await self._over(attempt)) is not None:
                self._gangs.pop(key, None)
                return NodeOrder(action="leave", reason=over.reason)
            if attempt.nodes and len(gang.ended) == len(attempt.nodes):
                self._gangs.pop(key, None)
            if reason := _news(gang, state.node, attempt.nodes):
                return NodeOrder(action="end", reason=reason)
            left = min(deadline - time.monotonic(), LOOK_S)
            if left <= 0 or state.ended:
                return NodeOrder()
            await wait_for(changed, left)
            gang.heard[state.node] = time.monotonic()

    def _take(self, gang: _Gang, state: NodeState) -> None:
        gang.heard[state.node] = time.monotonic()
        if state.ended:
            gang.ended.add(state.node)
        if state.broken and state.node not in gang.broken:
            gang.broken[state.node] = state.broken
            gang.changed.notify()

    async def _over(self, attempt: Attempt) -> JoinAnswer | None:
        """Return the answer (`leave`) to launchers whose attempt has ended or must not start any more; else None."""
        trial = await asyncio.to_thread(self._store.trial, attempt.experiment, attempt.trial)
        if attempt.state is AttemptState.ENDED or trial.attempt != attempt.number:
            return JoinAnswer(action="leave", reason=f"attempt {attempt.id} is over", outcome="lost")
        if not attempt.nodes and trial.state in (TrialState.RELEASING, TrialState.STOPPING):
            reason = f"trial {trial.id} is {trial.state}: it does not begin"
            return JoinAnswer(action="leave", reason=reason, outcome="released")
        return None

    async def _decide(self, attempt: Attempt, gang: _Gang, offer: NodeOffer) -> JoinAnswer:
        known = gang.offers.get(offer.node)
        if known is not None and known.process != offer.process:
            return JoinAnswer(action="leave", reason=f"another launcher has joined as node {offer.node}")
        gang.offers[offer.node] = offer
        now = time.monotonic()
        if gang.complete is None and len(gang.offers) == offer.nodes:
            gang.complete = now
        wanted = self._wanted(attempt)
        waited = now - max([gang.began, *gang.heard.values()])  # nodes that are staging in send messages, too
        found = joined(gang.offers, wanted, waited, 0.0 if gang.complete is None else now - gang.complete)
        if isinstance(found, Impossible):
            gang.refused = await self._refused(attempt, found)
            return gang.refused
        if isinstance(found, Joined):
            await self._begin(attempt, found, gang)
            return _again(found.nodes, offer)
        first = gang.offers.get(0)
        return JoinAnswer(
            action="wait",
            reason=found.reason,
            probe=found.probe,
            port=first.probe_port if first is not None else 0,
            process=first.process if first is not None else "",
        )

    async def _refused(self, attempt: Attempt, why: Impossible) -> JoinAnswer:
        """Return the answer to the launchers of a gang that cannot start, for the reason `why`.

        If the cause is a fault of a node that is now excluded, no retry is used up: the gang starts on other nodes.
        """
        if why.fault is None or not await self._is_left_out(attempt, why.node, why.fault, why.reason):
            return JoinAnswer(action="leave", reason=why.reason, outcome=why.outcome)
        reason = f"{why.reason}. Node {why.node} is left out for now, and the gang goes elsewhere"
        return JoinAnswer(action="leave", reason=reason, outcome="lost")

    async def _is_left_out(self, attempt: Attempt, node: str, kind: FaultKind, reason: str) -> bool:
        """Store a fault of a node during an attempt; return whether the node is now excluded from new gangs."""
        name = NodeName(attempt.pool, node)
        return name in await self._blame([node_fault(kind, name, attempt.id, time.time(), reason)])

    def _wanted(self, attempt: Attempt) -> Wanted:
        slots = sum(len(share.slots) for share in attempt.placement)
        kind = attempt.placement[0].kind if attempt.placement else "cpu"
        settings = self._settings(attempt.pool)
        if settings is None:
            return Wanted(slots, kind, __version__)
        return Wanted(slots, kind, __version__, settings.interface, settings.join_timeout)

    async def _begin(self, attempt: Attempt, found: Joined, gang: _Gang) -> None:
        """Store the nodes of a complete gang, and set its attempt to placed; its slots count as used from now on.

        A node whose clock is wrong gets a fault, and the attempt a note.
        """
        at = time.time()
        placed = await asyncio.to_thread(
            self._store.advance_attempt, attempt.id, e.Placed(), at, granted_at=at, nodes=found.nodes
        )
        if note := await asyncio.to_thread(self._data_note, placed):
            await asyncio.to_thread(self._store.note, attempt.id, note, at, "info")
        tolerance = CLOCK_S + (time.monotonic() - gang.began)  # offers may be this old
        for node, text in wrong_clocks(gang.offers.values(), at, tolerance).items():
            await asyncio.to_thread(self._store.note, attempt.id, text, at)
            await self._is_left_out(attempt, node, "clock", text)
        gang.began = time.monotonic()
        self._bus.notify()
        self._wake()


def _again(nodes: tuple[GangNode, ...], offer: NodeOffer) -> JoinAnswer:
    """Return the answer to a launcher that offers its node after the gang has started.

    It is `go` if the gang includes this launcher, which then repeats its offer, else `leave`.
    """
    if offer.node < len(nodes) and nodes[offer.node].process == offer.process:
        return JoinAnswer(action="go", nodes=nodes)
    return JoinAnswer(action="leave", reason="the gang has begun with other launchers", outcome="lost")


def _news(gang: _Gang, node: int, nodes: tuple[GangNode, ...]) -> str:
    """Return why the ranks of the node with index `node` must end, such as a failure on another node; else ""."""
    names = [each.name for each in nodes]
    for other, broken in gang.broken.items():
        if other != node:
            return f"{broken} on {names[other] if other < len(names) else f'node {other}'}"
    now = time.monotonic()
    for other, name in enumerate(names):
        if other != node and other not in gang.ended and now - gang.heard.get(other, gang.began) > SILENT_S:
            return f"node {name} has not been heard of for {SILENT_S:.0f} s"
    return ""
