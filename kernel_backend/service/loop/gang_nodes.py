"""Bring the launchers of a gang's nodes together, and tell each of them when another one's ranks cannot go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_backend import __version__
from kernel_backend.lifecycle.joining import Impossible, Joined, Wanted, joined
from kernel_backend.model import events as e
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.nodes import GangNode, JoinAnswer, NodeOffer, NodeOrder, NodeState
from kernel_backend.model.states import AttemptState, TrialState
from kernel_backend.model.trial import Attempt
from kernel_backend.service.notifier import Notifier, wait_for
from kernel_backend.store.base import Store

LOOK_S = 5.0  # between looks at an attempt whose launcher waits for news
SILENT_S = 90.0  # after which a node that has not been heard of is given up, while others are heard of
CLOCK_S = 5.0  # difference of clocks that is told

Settings = Callable[[str], PoolSettings | None]  # settings of the pool of an attempt's experiment


@dataclass
class _Gang:
    """Hold the state of a gang's launchers; a restarted service learns it again from their next calls."""

    began: float  # when the first launcher joined, by time.monotonic()
    complete: float | None = None  # when the last one did
    offers: dict[int, NodeOffer] = field(default_factory=dict)
    refused: JoinAnswer | None = None
    heard: dict[int, float] = field(default_factory=dict)  # when each node's state came last
    ended: set[int] = field(default_factory=set)
    broken: dict[int, str] = field(default_factory=dict)
    changed: Notifier = field(default_factory=Notifier)


class GangNodes:
    """Nodes of the gangs that an engine's own queue has placed."""

    def __init__(self, store: Store, settings: Settings, bus: Notifier, wake: Callable[[], None]) -> None:
        self._store, self._settings, self._bus, self._wake = store, settings, bus, wake
        self._gangs: dict[AttemptId, _Gang] = {}
        self._lock = asyncio.Lock()  # of decisions, each of which is stored once

    async def join(self, key: AttemptId, offer: NodeOffer) -> JoinAnswer:
        """Take a launcher's offer, and answer whether its ranks begin; the first answer `go` is stored."""
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
        """Take the state of a node's ranks; answer with news at once, or after `state.wait` seconds without any."""
        gang = self._gangs.setdefault(key, _Gang(time.monotonic()))
        self._take(gang, state)
        deadline = time.monotonic() + state.wait
        while True:
            changed = gang.changed.listen()
            attempt = await asyncio.to_thread(self._store.attempt, key)
            if (over := await self._over(attempt)) is not None:
                self._gangs.pop(key, None)
                return NodeOrder(action="leave", reason=over.reason)
            if len(gang.ended) == len(attempt.nodes):
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
        """Return the answer to the launchers of an attempt that shall not go on; None if it shall."""
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
        wanted = await self._wanted(attempt)
        found = joined(gang.offers, wanted, now - gang.began, 0.0 if gang.complete is None else now - gang.complete)
        if isinstance(found, Impossible):
            gang.refused = JoinAnswer(action="leave", reason=found.reason, outcome=found.outcome)
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

    async def _wanted(self, attempt: Attempt) -> Wanted:
        experiment = await asyncio.to_thread(self._store.experiment, attempt.experiment)
        slots = sum(len(share.slots) for share in attempt.placement)
        kind = attempt.placement[0].kind if attempt.placement else "cpu"
        settings = self._settings(experiment.config.pool or "")
        if settings is None:
            return Wanted(slots, kind, __version__)
        return Wanted(slots, kind, __version__, settings.interface, settings.join_timeout)

    async def _begin(self, attempt: Attempt, found: Joined, gang: _Gang) -> None:
        """Store where the gang runs: from now on its slots are charged."""
        at = time.time()
        await asyncio.to_thread(
            self._store.advance_attempt, attempt.id, e.Placed(), at, granted_at=at, nodes=found.nodes
        )
        for offer in gang.offers.values():
            if abs(ahead := offer.clock - at) > CLOCK_S + (time.monotonic() - gang.began):
                text = f"the clock of {offer.name} is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
                await asyncio.to_thread(self._store.note, attempt.id, text, at)
        gang.began = time.monotonic()
        self._bus.notify()
        self._wake()


def _again(nodes: tuple[GangNode, ...], offer: NodeOffer) -> JoinAnswer:
    """Return the answer to a launcher of a gang that has begun: `go` for its own launchers, and no others."""
    if offer.node < len(nodes) and nodes[offer.node].process == offer.process:
        return JoinAnswer(action="go", nodes=nodes)
    return JoinAnswer(action="leave", reason="the gang has begun with other launchers", outcome="lost")


def _news(gang: _Gang, node: int, nodes: tuple[GangNode, ...]) -> str:
    """Return why the ranks of a node are to be ended; "" if they go on."""
    names = [each.name for each in nodes]
    for other, broken in gang.broken.items():
        if other != node:
            return f"{broken} on {names[other] if other < len(names) else f'node {other}'}"
    now = time.monotonic()
    for other, name in enumerate(names):
        if other != node and other not in gang.ended and now - gang.heard.get(other, gang.began) > SILENT_S:
            return f"node {name} has not been heard of for {SILENT_S:.0f} s"
    return ""
