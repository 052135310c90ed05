"""Account for notebook servers in the cluster state: they hold slots like gangs, and a rule may reclaim these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.resources import Share
from kernel_backend.scheduler.requests import Allocation, RequestKey
from kernel_backend.scheduler.state import ClusterState

ELSEWHERE = ""  # the node of slots that are on none of the cluster state's: they are charged, and otherwise ignored


def key(server: Server, nth: int = 0) -> RequestKey:
    """Return the key of an allocation of a server; `nth` 1 is for the slots that no node had free."""
    return RequestKey(0, 0, nth, server.full_name)


def take_in(picture: ClusterState, servers: Iterable[Server]) -> None:
    """Update the cluster state to hold the slots of these servers, and of no others.

    A server that is already there keeps its slots; one that has more than were free gets the others as they become
    free.
    """
    present = {server.full_name: server for server in servers}
    leaving: dict[str, float] = {}  # asked to stop, and still there
    for run in [run for run in picture.runs.values() if run.key.server]:
        server = present.get(run.key.server)
        if server is None or not _stands(picture, server):
            picture.let_go(run.key)
            if server is not None and server.since == run.since and run.leaving is not None:
                leaving[run.key.server] = run.leaving
    for server in sorted(present.values(), key=lambda server: (server.since, server.full_name)):
        first, rest = picture.runs.get(key(server)), picture.runs.get(key(server, 1))
        node = _node(picture, server) if first is None else first.placement[0].node
        if (first is None and rest is None) or (rest is not None and node is not None and picture.free[node]):
            for run in filter(None, (first, rest)):
                if run.leaving is not None:
                    leaving[server.full_name] = run.leaving
                picture.let_go(run.key)
            for run in _runs(picture, server, node):
                picture.hold(replace(run, leaving=leaving.get(server.full_name)))
        elif first is not None and first.last_activity != server.last_activity:
            picture.change(first.key, last_activity=server.last_activity)


def take_back_at(picture: ClusterState, server: Server) -> float | None:
    """Return when its slots may be reclaimed if it stays idle until then; None without such a rule."""
    idle = picture.rules.idle_servers
    return None if idle is None else server.last_activity + idle


def _stands(picture: ClusterState, server: Server) -> bool:
    """Return whether the recorded allocation still matches the server, on nodes that still exist."""
    held = [picture.runs[each] for each in (key(server), key(server, 1)) if each in picture.runs]
    theirs = (server.owner, server.group, server.pool, server.since)
    if any((run.owner, run.group, run.pool, run.since) != theirs for run in held):
        return False
    nodes = {share.node for run in held for share in run.placement} - {ELSEWHERE}
    there = {server.node} if server.node in picture.nodes else picture.nodes.keys()
    return sum(run.slots for run in held) == server.slots and nodes <= there


def _runs(picture: ClusterState, server: Server, name: str | None) -> Iterator[Allocation]:
    """Yield the allocation on its node, and one for the slots beyond what is free there."""
    free = picture.free[name] if name is not None else []
    slots = tuple(free[max(0, len(free) - server.slots) :])  # gangs take the first ones
    beyond = tuple(range(server.slots - len(slots)))
    if name is not None and slots:
        node = picture.nodes[name]
        yield _run(server, 0, Share(node=name, kind=node.kind, address=node.address, slots=slots))
    if beyond:
        yield _run(server, 1, Share(node=ELSEWHERE, kind="", address="", slots=beyond))


def _node(picture: ClusterState, server: Server) -> str | None:
    """Return its node as far as that is recorded; else the tightest fit, or the node with most free slots."""
    if server.node is not None:
        return server.node if server.node in picture.nodes else None
    nodes = picture.of_pool(server.pool)
    room = {node.name: len(picture.free[node.name]) for node in [node for node in nodes if node.healthy] or nodes}
    enough = [name for name in room if room[name] >= server.slots]
    return min(enough or room, key=lambda name: (room[name] if enough else -room[name], name), default=None)


def _run(server: Server, nth: int, share: Share) -> Allocation:
    return Allocation(
        key(server, nth),
        (share,),
        server.since,
        server.owner,
        server.group,
        server.pool,
        last_activity=server.last_activity if nth == 0 else None,
    )
