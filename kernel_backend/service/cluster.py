"""The verbs about what all share: the queue and its order, nodes, and pools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from kernel_backend.engines.base import Engine
from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.experiment import FIRST, MOST_PRIORITY, Experiment
from kernel_backend.model.overview import NodeRun, NodeUse, Overview
from kernel_backend.model.people import Person
from kernel_backend.model.sharing import Deed, Pool, Waiting
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.values import nearest
from kernel_backend.scheduler.asks import ANY_TRIAL, Ask, Key, Order, Run
from kernel_backend.scheduler.explain import explain
from kernel_backend.scheduler.order import in_order
from kernel_backend.scheduler.picture import Picture
from kernel_backend.scheduler.reservations import ripe_at
from kernel_backend.service.roster import StoredRoster
from kernel_backend.service.sharing import Looking, check_admin
from kernel_backend.service.visible import visible
from kernel_backend.store.base import Store

EXPLAINED = 200  # asks of a pool whose reasons are told: who is farther back waits for these


class ClusterVerbs:
    """What waits and what runs, on what. A change is in force at the next decision, which it brings about."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        roster: StoredRoster,
        looking: Looking,
        overview: Callable[[Person, int], Awaitable[Overview]],
        changed: Callable[[], None],
    ) -> None:
        self._store, self._engine, self._roster, self._looking = store, engine, roster, looking
        self._overview, self._changed = overview, changed
        self._ordering = asyncio.Lock()  # of two that are put first at once, the second is ahead

    # The queue

    async def queue(self, who: Person) -> list[Waiting]:
        """All that wait, pool by pool, in the order of their turns; those that have none just now come last."""
        async with self._looking() as picture:
            found = await asyncio.to_thread(_queue, picture, who)
        names = {each.experiment for each in found if each.experiment is not None}
        by_number = await asyncio.to_thread(self._names, names)
        return [_named(each, by_number) for each in found]

    def _names(self, numbers: set[int]) -> dict[int, str]:
        return {each.number: each.name for each in self._store.unfinished_experiments() if each.number in numbers}

    async def priority(self, who: Person, number: int, priority: int) -> Overview:
        """Give what an experiment asks for another turn: an admin any, its owner one that quotas allow.

        What an admin has given, its owner may lower. Raises NotFound, Forbidden, InvalidRequest, and Conflict where
        the experiment has ended.
        """
        if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
            raise InvalidRequest(f"priority {priority}: must be from -{MOST_PRIORITY} to {MOST_PRIORITY}")
        await visible(self._store, who, number)
        return await self._reorder(who, number, lambda before: self._prioritised(who, before, priority))

    async def first(self, who: Person, number: int) -> Overview:
        """Put what an experiment asks for ahead of everything that waits; for admins. `priority` takes it back."""
        await visible(self._store, who, number)
        check_admin(who, "the head of the queue is given by admins")
        async with self._ordering:
            unfinished = await asyncio.to_thread(self._store.unfinished_experiments)
            ahead = max((each.priority or 0 for each in unfinished if each.number != number), default=0)
            place = max(FIRST, ahead + 1)
            return await self._reorder(who, number, lambda before: _given(who, before, place, "first"))

    async def _reorder(
        self, who: Person, number: int, change: Callable[[Experiment], tuple[Mapping[str, Any], Deed | None]]
    ) -> Overview:
        await asyncio.to_thread(self._store.update_experiment, number, time.time(), change)
        self._changed()
        return await self._overview(who, number)

    def _prioritised(self, who: Person, before: Experiment, priority: int) -> tuple[Mapping[str, Any], Deed | None]:
        highest = max(
            self._roster.quota("user", before.owner).priority, self._roster.quota("group", before.group).priority
        )
        own = before.owner == who.name
        if who.admin and not (own and priority <= highest):
            return _given(who, before, priority, "priority")
        if not own:
            raise Forbidden(f"experiment #{before.number} is {before.owner}'s: you may look at it and not change it")
        _check_open(before)
        if priority > highest:
            raise Forbidden(f"priority {priority}: you may ask with {highest} at most; an admin may give you more")
        config = before.config.model_copy(update={"priority": priority})
        if who.admin or before.priority is None:
            return {"config": config, "priority": None}, None
        if priority > before.priority:
            raise Forbidden(f"an admin gave #{before.number} priority {before.priority}: you may lower it")
        return {"config": config, "priority": priority}, None

    # Nodes and pools

    async def nodes(self, who: Person) -> list[NodeUse]:
        """The nodes, and what holds how many of their slots."""
        async with self._looking() as picture:
            runs = _runs(picture, who)
            return [self._node(picture, name, runs.get(name, [])) for name in picture.nodes]

    async def drain(self, who: Person, name: str, drained: bool = True) -> NodeUse:
        """Start nothing more on a node, or do so again; what runs there goes on. For admins.

        Raises Forbidden, and NotFound with the nearest name.
        """
        check_admin(who, "nodes are drained by admins")
        async with self._looking() as picture:
            known, held = set(picture.nodes), len(_runs(picture, who).get(name, []))
        if name not in known and not (name in self._roster.drained and not drained):
            raise NotFound(f"there is no node {name}{nearest(name, known)}; there are {', '.join(sorted(known))}")
        act = "drain" if drained else "undrain"
        running = f"{held} gang{'' if held == 1 else 's'} there" if held else ""
        deed = Deed(at=time.time(), who=who.name, act=act, on=f"node {name}", detail=running)
        await asyncio.to_thread(self._store.set_drained, name, drained, deed)
        await asyncio.to_thread(self._roster.reload)
        self._changed()
        async with self._looking() as picture:
            if name not in picture.nodes:
                return NodeUse(name=name, kind="", slots=0, used=0, healthy=False)
            return self._node(picture, name, _runs(picture, who).get(name, []))

    def _node(self, picture: Picture, name: str, runs: list[NodeRun]) -> NodeUse:
        node = picture.nodes[name]
        return NodeUse(
            name=name,
            kind=node.kind,
            slots=node.slots,
            used=node.slots - len(picture.free[name]),
            devices=node.devices,
            healthy=node.healthy,
            pool=node.pool,
            address=node.address,
            drained=node.drained or name in self._roster.drained,
            runs=tuple(runs),
        )

    async def pools(self) -> list[Pool]:
        """The pools by name: what they have, what of it is in use, and how many wait for it."""
        async with self._looking() as picture:
            return [self._pool(picture, name) for name in sorted(picture.pools)]

    def _pool(self, picture: Picture, name: str) -> Pool:
        nodes = picture.of_pool(name)
        slots = sum(node.slots for node in nodes)
        return Pool(
            name=name,
            engine=self._engine.name,
            kinds=tuple(sorted({node.kind for node in nodes})),
            slots=slots,
            used=slots - sum(len(picture.free[node.name]) for node in nodes),
            waiting=sum(ask.pool == name for ask in picture.queue if ask.nth == 0),
        )


def _given(who: Person, before: Experiment, priority: int, act: str) -> tuple[Mapping[str, Any], Deed]:
    """An admin's priority, with the deed."""
    _check_open(before)
    was = before.config.priority if before.priority is None else before.priority
    detail = f"priority {_spelled(was)} -> {_spelled(priority)}"
    deed = Deed(at=time.time(), who=who.name, act=act, on=f"#{before.number}", detail=f"{detail}, of {before.owner}")
    return {"priority": priority}, deed


def _spelled(priority: int) -> str:
    return "first" if priority >= FIRST else str(priority)


def _check_open(experiment: Experiment) -> None:
    if experiment.state in EXPERIMENT_ENDED:
        raise Conflict(f"experiment #{experiment.number} is {experiment.state}: it waits for nothing")


def _sees(who: Person, owner: str, group: str) -> bool:
    return who.admin or who.name == owner or group in who.groups


def _queue(picture: Picture, who: Person) -> list[Waiting]:
    return [each for pool in sorted(picture.pools) for each in _waiting(picture, pool, who)]


def _waiting(picture: Picture, pool: str, who: Person) -> Iterator[Waiting]:
    """What waits in a pool. A search that wants several gangs is told once, at the first of its places."""
    in_turn = list(in_order(picture, pool))
    ordered = {ask.key for ask in in_turn}
    without = sorted((ask for ask in picture.queue if ask.pool == pool and ask.key not in ordered), key=_order)
    told: set[tuple[int, int]] = set()
    for place, ask in enumerate((*in_turn, *without), 1):
        if ask.key[:2] not in told:
            told.add(ask.key[:2])
            yield _row(picture, ask, place, who)


def _order(ask: Ask) -> Order:
    return ask.order


def _row(picture: Picture, ask: Ask, place: int, who: Person) -> Waiting:
    seen = _sees(who, ask.owner, ask.group)
    return Waiting(
        pool=ask.pool,
        place=place,
        slots=ask.slots,
        queued_at=ask.queued_at,
        priority=ask.priority,
        owner=ask.owner if seen else "",
        group=ask.group,
        experiment=ask.experiment if seen else None,
        trial=ask.trial if seen and ask.trial != ANY_TRIAL else None,
        wait=explain(picture, ask) if seen and place <= EXPLAINED else None,
    )


def _named(row: Waiting, names: Mapping[int, str]) -> Waiting:
    return row if row.experiment is None else row.model_copy(update={"name": names.get(row.experiment, "")})


def _runs(picture: Picture, who: Person) -> dict[str, list[NodeRun]]:
    """What holds slots, by node."""
    found: dict[str, list[NodeRun]] = {}
    for key, run in sorted(picture.runs.items()):
        for share in run.placement:
            about: dict[str, Any] = {"slots": len(share.slots), "group": run.group}
            if _sees(who, run.owner, run.group):
                about |= {"owner": run.owner, **(_of_server(picture, run) if key.server else _of_gang(key))}
            found.setdefault(share.node, []).append(NodeRun.model_validate(about))
    return found


def _of_gang(key: Key) -> dict[str, Any]:
    return {"experiment": key.experiment, "trial": key.trial}


def _of_server(picture: Picture, run: Run) -> dict[str, Any]:
    """A notebook server, and what becomes of it where nothing is done there."""
    back = ripe_at(run, picture.rules)
    return {"server": run.key.server, "last_activity": run.last_activity, "take_back_at": back}
