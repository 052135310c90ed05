"""Implement operations on the shared cluster: on the queue and its order, and on nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.cluster.accounts import AuditEntry, Waiting
from kernel_backend.model.cluster.idle import TrialKey
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import FIRST, MOST_PRIORITY, Experiment
from kernel_backend.model.node_faults import Suspicion
from kernel_backend.model.resources import Node
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.values import nearest
from kernel_backend.model.views.overview import NodeRun, NodeUse, Overview, Wait
from kernel_backend.scheduler.explain.explain import explain, explain_in_order
from kernel_backend.scheduler.order import in_order
from kernel_backend.scheduler.requests import ANY_TRIAL, Allocation, Order, RequestKey, SlotRequest
from kernel_backend.scheduler.reservations import preemptible_at
from kernel_backend.scheduler.run_lengths import Lengths
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.access import may_continue, visible
from kernel_backend.service.context import Context
from kernel_backend.service.state.cluster_state import ClusterStateManager
from kernel_backend.service.state.nodes import name_of
from kernel_backend.service.verbs.quotas import check_admin

EXPLAINED = 200  # requests per pool whose wait is explained; later ones wait for these
EXPLAINED_BEHIND = 10  # the same for requests that are not eligible, and for the user's own beyond the limit


class ClusterVerbs:
    """Operations on the queue and on nodes.

    A change wakes the scheduler, which takes it into account in its next decision.
    """

    def __init__(
        self,
        context: Context,
        cluster_state: ClusterStateManager,
        overview: Callable[[Person, int], Awaitable[Overview]],
        changed: Callable[[], None],
        idle: Callable[[], Mapping[TrialKey, float]],
    ) -> None:
        """Create the operations.

        `idle` returns the gangs that leave their slots unused, with the seconds for which they have done so. `changed`
        is called after a change that the scheduler must see; `overview` returns an experiment's overview for a user.
        """
        self._idle = idle
        self._store, self._stored_quotas, self._cluster_state = context.store, context.stored_quotas, cluster_state
        self._nodes = context.nodes
        self._overview, self._changed = overview, changed
        self._ordering = asyncio.Lock()  # if two experiments are put first at once, the second one is ahead

    # The queue

    async def queue(self, who: Person, limit: int) -> list[Waiting]:
        """Return the queued requests of each pool in scheduling order, then those that cannot be scheduled now.

        Beyond the first `limit` requests of each pool only the user's own are listed.
        """
        async with self._cluster_state.looking() as cluster:
            look = _Look(cluster, self._cluster_state.lengths, who, limit)
            found = await asyncio.to_thread(look.rows)
        names = await asyncio.to_thread(self._store.unfinished_names)
        return [_named(each, names) for each in found]

    async def priority(self, who: Person, number: int, priority: int | None) -> Overview:
        """Set an experiment's priority: an admin may set any, an owner one that the quota allows.

        An owner may lower a priority that an admin has set. None removes the admin's priority, so that the owner's
        applies again; only admins may do that. Raises NotFound, Forbidden, InvalidRequest, and Conflict if the
        experiment has ended.
        """
        await visible(self._store, who, number)
        if priority is None:
            check_admin(who, "what an admin has given is taken back by admins")
            return await self._reorder(who, number, lambda before: _taken_back(who, before))
        if who.admin and priority >= FIRST:
            return await self._first(who, number, priority)
        if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
            raise InvalidRequest(f"priority {priority}: must be from -{MOST_PRIORITY} to {MOST_PRIORITY}")
        return await self._reorder(who, number, lambda before: self._prioritised(who, before, priority))

    async def first(self, who: Person, number: int) -> Overview:
        """Put an experiment ahead of all requests in the queue; for admins only.

        To undo this, call `priority` with the earlier value.
        """
        await visible(self._store, who, number)
        check_admin(who, "the head of the queue is given by admins")
        return await self._first(who, number)

    async def _first(self, who: Person, number: int, had: int | None = None) -> Overview:
        """Set an experiment's priority one above the highest of all others, and to `FIRST` at least.

        If `had` is given, it is the priority to set; it is lowered if that suffices to be ahead of all others.
        """
        async with self._ordering:
            await self._cluster_state.now()  # applies the latest changes
            unfinished = self._cluster_state.cache.experiments.values()
            ahead = max((each.priority or 0 for each in unfinished if each.number != number), default=0)
            place = max(FIRST, ahead + 1) if had is None else min(had, max(FIRST, ahead + 1))
            return await self._reorder(who, number, lambda before: _given(who, before, place, "first"))

    async def _reorder(
        self, who: Person, number: int, change: Callable[[Experiment], tuple[Mapping[str, Any], AuditEntry | None]]
    ) -> Overview:
        await asyncio.to_thread(self._store.update_experiment, number, time.time(), change)
        self._changed()
        return await self._overview(who, number)

    def _prioritised(
        self, who: Person, before: Experiment, priority: int
    ) -> tuple[Mapping[str, Any], AuditEntry | None]:
        highest = max(
            self._stored_quotas.quota("user", before.owner).priority,
            self._stored_quotas.quota("group", before.group).priority,
        )
        own = before.owner == who.name
        if who.admin and not (own and priority <= highest):
            return _given(who, before, priority, "priority")
        if not own:
            raise Forbidden(f"experiment #{before.number} is {before.owner}'s: you may look at it and not change it")
        _check_open(before)
        if priority > (before.config.priority if before.priority is None else before.priority):
            may_continue(who, before)
        if priority > highest:
            raise Forbidden(f"priority {priority}: you may request {highest} at most; an admin may give you more")
        config = before.config.model_copy(update={"priority": priority})
        if who.admin or before.priority is None:
            return {"config": config, "priority": None}, None
        if priority > before.priority:
            raise Forbidden(f"an admin gave #{before.number} priority {before.priority}: you may lower it")
        return {"config": config, "priority": priority}, None

    # Nodes

    async def nodes(self, who: Person) -> list[NodeUse]:
        """Return all nodes, each with the gangs and notebook servers on it, and how many slots these hold."""
        async with self._cluster_state.looking() as cluster:
            runs, suspect = _runs(cluster, who, self._idle()), self._nodes.suspicions(cluster.nodes.values())
            return [
                self._node(node, runs.get(name, []), suspect.get(name_of(node))) for name, node in cluster.nodes.items()
            ]

    async def drain(self, who: Person, name: str, drained: bool = True) -> NodeUse:
        """Drain a node, so that nothing new starts on it, or undrain it; running gangs continue. For admins only.

        Undraining a node that is suspected of faults ends the suspicion. Raises Forbidden, and NotFound, which suggests
        the most similar node name.
        """
        check_admin(who, "nodes are drained by admins")
        async with self._cluster_state.looking() as picture:
            known = dict(picture.nodes)
            held = sum(not run.outside for run in _runs(picture, who).get(name, []))
            suspicion = self._suspicion(picture, name)
        if name not in known and not (name in self._stored_quotas.drained and not drained):
            raise NotFound(f"there is no node {name}{nearest(name, known)}; there are {', '.join(sorted(known))}")
        act = "drain" if drained else "undrain"
        running = f"{held} gang{'' if held == 1 else 's'} there" if held else ""
        entry = AuditEntry(at=time.time(), who=who.name, act=act, on=f"node {name}", detail=running)
        await asyncio.to_thread(self._store.set_drained, name, drained, entry)
        if not drained and name in known:
            detail = f"it was suspect: {suspicion.reason}" if suspicion is not None else "its faults are forgotten"
            await self._nodes.forgive(known[name], entry.model_copy(update={"act": "trust", "detail": detail}))
        await self._stored_quotas.reload()
        self._changed()
        async with self._cluster_state.looking() as cluster:
            if name not in cluster.nodes:
                return NodeUse(name=name, kind="", slots=0, used=0, healthy=False)
            node, runs = cluster.nodes[name], _runs(cluster, who, self._idle()).get(name, [])
            return self._node(node, runs, self._suspicion(cluster, name))

    def _suspicion(self, cluster: ClusterState, name: str) -> Suspicion | None:
        node = cluster.nodes.get(name)
        return None if node is None else self._nodes.suspicions(cluster.nodes.values()).get(name_of(node))

    def _node(self, node: Node, runs: list[NodeRun], suspicion: Suspicion | None) -> NodeUse:
        return NodeUse(
            name=node.name,
            kind=node.shown_kind,
            slots=node.slots,
            used=sum(run.slots for run in runs),
            devices=node.devices,
            healthy=node.healthy,
            pool=node.pool,
            address=node.address,
            drained=node.drained or node.name in self._stored_quotas.drained,
            state=node.state,
            reason=node.reason,
            suspicion=suspicion,
            runs=tuple(runs),
        )


def _given(who: Person, before: Experiment, priority: int, act: str) -> tuple[Mapping[str, Any], AuditEntry]:
    """Return the fields to change in an experiment whose priority an admin sets, and the audit entry.

    `act` is the verb in the entry: `first` or `priority`.
    """
    _check_open(before)
    was = before.config.priority if before.priority is None else before.priority
    detail = f"priority {_spelled(was)} -> {_spelled(priority)}, of {before.owner}"
    return {"priority": priority}, AuditEntry(
        at=time.time(), who=who.name, act=act, on=f"#{before.number}", detail=detail
    )


def _taken_back(who: Person, before: Experiment) -> tuple[Mapping[str, Any], AuditEntry | None]:
    """Return the fields to change so that the owner's priority of an experiment applies again, and the audit entry.

    There is nothing to change, and no entry, if no admin has set a priority.
    """
    _check_open(before)
    if before.priority is None:
        return {}, None
    detail = f"priority {_spelled(before.priority)} -> {before.config.priority} as requested, of {before.owner}"
    entry = AuditEntry(at=time.time(), who=who.name, act="priority", on=f"#{before.number}", detail=detail)
    return {"priority": None}, entry


def _spelled(priority: int) -> str:
    return "first" if priority >= FIRST else str(priority)


def _check_open(experiment: Experiment) -> None:
    if experiment.state in EXPERIMENT_ENDED:
        raise Conflict(f"experiment #{experiment.number} is {experiment.state}: it waits for nothing")


@dataclass(frozen=True)
class _Look:
    """Builder of the list of queued requests for one user, with at most `limit` rows per pool in scheduling order.

    Up to `limit` further rows per pool have other requests (see `_of_pool`).
    """

    cluster: ClusterState
    lengths: Mapping[str, Lengths]
    who: Person
    limit: int

    def rows(self) -> list[Waiting]:
        """Return the queued requests as rows, pool by pool."""
        return [row for pool in sorted(self.cluster.pools) for row in self._of_pool(pool)]

    def _of_pool(self, pool: str) -> Iterator[Waiting]:
        """Yield the queued requests of a pool as rows: up to `limit` in scheduling order, then up to `limit` others.

        If fewer than `limit` requests can be scheduled, the others are those that cannot be scheduled, of all users. If
        there are at least `limit`, the others are only the user's own further requests. A search that requests several
        gangs gets one row, at its first position.
        """
        in_turn = list(islice(in_order(self.cluster, pool), self.limit))
        ordered = {request.key for request in in_turn}
        whole = len(in_turn) < self.limit
        theirs = (here for request in self.cluster.queue if (here := request.within(pool)) is not None)
        others = [request for request in theirs if request.key not in ordered]
        others = sorted((request for request in others if whole or request.owner == self.who.name), key=_order)[
            : self.limit
        ]
        told: set[tuple[int, int]] = set()
        for nth, request in enumerate((*in_turn, *others)):
            if request.key[:2] not in told:
                told.add(request.key[:2])
                place = 1 + nth if whole else min(1 + nth, self.limit + 1)
                yield self._row(request, place, nth, in_turn)

    def _wait(self, nth: int, request: SlotRequest, ordered: list[SlotRequest]) -> Wait | None:
        if nth < min(EXPLAINED, len(ordered)):
            return explain_in_order(self.cluster, request, ordered[:nth], self.lengths, self.who)
        behind = 0 <= nth - len(ordered) < EXPLAINED_BEHIND
        return explain(self.cluster, request, self.lengths, self.who) if behind else None

    def _row(self, request: SlotRequest, place: int, nth: int, ordered: list[SlotRequest]) -> Waiting:
        about: dict[str, Any] = {
            "pool": request.pool,
            "place": place,
            "slots": request.slots,
            "queued_at": request.queued_at,
        }
        group = _group(self.who, request.owner, request.group)
        about |= {"priority": request.priority, "group": group, "owner": ""}
        if self.who.sees(request.owner, request.group):
            trial = None if request.trial == ANY_TRIAL else request.trial
            about |= {"owner": request.owner, "experiment": request.experiment, "trial": trial}
            about |= {"wait": self._wait(nth, request, ordered), "by_admin": request.by_admin}
        return Waiting.model_validate(about)


def _order(request: SlotRequest) -> Order:
    return request.order


def _named(row: Waiting, names: Mapping[int, str]) -> Waiting:
    return row if row.experiment is None else row.model_copy(update={"name": names.get(row.experiment, "")})


def _runs(
    cluster: ClusterState, who: Person, idle: Mapping[TrialKey, float] = MappingProxyType({})
) -> dict[str, list[NodeRun]]:
    """Return the allocations (gangs, notebook servers, other programs) on each node as `who` may see them, by node.

    Owner and number are left out where the user may not see them. `idle` has the seconds for which gangs have been
    idle.
    """
    found: dict[str, list[NodeRun]] = {}
    for key, run in sorted(cluster.runs.items()):
        for share in () if run.waiting else run.actual or run.placement:
            about: dict[str, Any] = {"slots": len(share.slots), "group": _group(who, run.owner, run.group)}
            if key.outside:
                about["outside"] = key.outside if who.admin else "another program"
            elif who.sees(run.owner, run.group):
                about |= {"owner": run.owner, **(_of_server(cluster, run) if key.server else _of_gang(key, idle))}
            found.setdefault(share.node, []).append(NodeRun.model_validate(about))
    return found


def _group(who: Person, owner: str, group: str) -> str:
    """Return the group of an allocation for display to `who`; "" if the user must not see it.

    A user without groups is the only member of a group with their own name, which would reveal the owner.
    """
    return "" if group == owner and not who.sees(owner, group) else group


def _of_gang(key: RequestKey, idle: Mapping[TrialKey, float]) -> dict[str, Any]:
    seconds = idle.get((key.experiment, key.trial))
    last = None if seconds is None else time.time() - seconds
    return {"experiment": key.experiment, "trial": key.trial, "last_activity": last}


def _of_server(cluster: ClusterState, run: Allocation) -> dict[str, Any]:
    """Return the fields that describe a notebook server: name, last activity, and when it may be stopped if idle."""
    back = preemptible_at(run, cluster.rules)
    return {"server": run.key.server, "last_activity": run.last_activity, "take_back_at": back}
