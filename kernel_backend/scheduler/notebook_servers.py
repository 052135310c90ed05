"""Represent the hub's notebook servers in the cluster state: they hold slots like gangs; idle ones may be stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.resources import Share
from kernel_backend.scheduler.requests import Allocation, RequestKey
from kernel_backend.scheduler.state import ClusterState

ELSEWHERE = ""  # pseudo-node for slots on no known node: they count for quotas only


def key(server: Server, nth: int = 0) -> RequestKey:
    """Return the key of a notebook server's allocation.

    A server has up to two allocations: `nth` 0 has the slots on its node. `nth` 1 has slots that were not free there;
    these are on no node, and count for quotas only.
    """
    return RequestKey(0, 0, nth, server.full_name)


def take_in(cluster: ClusterState, servers: Iterable[Server]) -> None:
    """Update the cluster state so that exactly these notebook servers hold slots.

    A server that is already recorded keeps its slots. If too few slots were free for a server, it gets the missing ones
    when they become free.
    """
    present = {server.full_name: server for server in servers}
    leaving: dict[str, float] = {}  # when servers that still run were asked to stop
    for run in [run for run in cluster.runs.values() if run.key.server]:
        server = present.get(run.key.server)
        if server is None or not _stands(cluster, server):
            cluster.let_go(run.key)
            if server is not None and server.since == run.since and run.leaving is not None:
                leaving[run.key.server] = run.leaving
    for server in sorted(present.values(), key=lambda server: (server.since, server.full_name)):
        first, rest = cluster.runs.get(key(server)), cluster.runs.get(key(server, 1))
        node = _node(cluster, server) if first is None else first.placement[0].node
        if (first is None and rest is None) or (rest is not None and node is not None and cluster.free[node]):
            for run in filter(None, (first, rest)):
                if run.leaving is not None:
                    leaving[server.full_name] = run.leaving
                cluster.let_go(run.key)
            for run in _runs(cluster, server, node):
                cluster.hold(replace(run, leaving=leaving.get(server.full_name)))
        elif first is not None and first.last_activity != server.last_activity:
            cluster.change(first.key, last_activity=server.last_activity)


def take_back_at(cluster: ClusterState, server: Server) -> float | None:
    """Return the time (seconds since the epoch) from which an idle server's slots may be reclaimed; None if never."""
    idle = cluster.rules.idle_servers
    return None if idle is None else server.last_activity + idle


def _stands(cluster: ClusterState, server: Server) -> bool:
    """Return whether the cluster state already has this server's slots as the hub reports them, on existing nodes."""
    held = [cluster.runs[each] for each in (key(server), key(server, 1)) if each in cluster.runs]
    theirs = (server.owner, server.group, server.pool, server.since)
    if any((run.owner, run.group, run.pool, run.since) != theirs for run in held):
        return False
    nodes = {share.node for run in held for share in run.placement} - {ELSEWHERE}
    there = {server.node} if server.node in cluster.nodes else cluster.nodes.keys()
    return sum(run.slots for run in held) == server.slots and nodes <= there


def _runs(cluster: ClusterState, server: Server, name: str | None) -> Iterator[Allocation]:
    """Yield a server's allocation on the node `name`, and another without a node for slots that are not free there."""
    free = cluster.free[name] if name is not None else []
    slots = tuple(free[max(0, len(free) - server.slots) :])  # gangs get the first slots of a node
    beyond = tuple(range(server.slots - len(slots)))
    if name is not None and slots:
        node = cluster.nodes[name]
        yield _run(server, 0, Share(node=name, kind=node.kind, address=node.address, slots=slots))
    if beyond:
        yield _run(server, 1, Share(node=ELSEWHERE, kind="", address="", slots=beyond))


def _node(cluster: ClusterState, server: Server) -> str | None:
    """Return the name of a notebook server's node: the one that the hub reports, else one with enough free slots.

    Of several, the one with the fewest free slots is chosen; if no node has enough, the one with the most free slots.
    None if the node that the hub reports is not in the cluster state.
    """
    if server.node is not None:
        return server.node if server.node in cluster.nodes else None
    nodes = cluster.of_pool(server.pool)
    capacity = {node.name: len(cluster.free[node.name]) for node in [node for node in nodes if node.healthy] or nodes}
    enough = [name for name in capacity if capacity[name] >= server.slots]
    return min(enough or capacity, key=lambda name: (capacity[name] if enough else -capacity[name], name), default=None)


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
