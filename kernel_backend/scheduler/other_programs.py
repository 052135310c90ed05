"""Represent programs that Daylight has not started but that hold slots, such as other pods of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.resources import Holder, Node, Share
from kernel_backend.scheduler import notebook_servers
from kernel_backend.scheduler.requests import Allocation, RequestKey
from kernel_backend.scheduler.state import ClusterState


def take_in(cluster: ClusterState, servers: Iterable[Server]) -> None:
    """Update the cluster state so that exactly these notebook servers, and the other programs on the nodes, hold slots.

    A notebook server that its engine also reports as a program on a node is counted once, and charged to its owner.
    Servers are placed before other programs, which get the slots that are left.
    """
    servers = tuple(servers)
    for run in [run for run in cluster.runs.values() if run.key.outside]:
        cluster.let_go(run.key)
    notebook_servers.take_in(cluster, located(servers, cluster.nodes.values()))
    for program in sorted((*_programs(cluster, servers), *_moved(cluster)), key=lambda each: each.key):
        if shares := tuple(_shares(cluster, program)):
            cluster.hold(program.allocation(shares))


def located(servers: Iterable[Server], nodes: Iterable[Node]) -> tuple[Server, ...]:
    """Return the notebook servers that hold slots, each placed on the node on which an engine sees it running.

    On a node with GPUs, a server holds as many slots as the engine sees, whatever the hub's options say.
    """
    servers = tuple(servers)
    seen = _seen(servers, nodes)
    found = [_located(each, *seen[each.full_name]) if each.full_name in seen else each for each in servers]
    return tuple(server for server in found if server.slots)


class _Program(NamedTuple):
    """Program that holds slots on a node.

    An engine's own scheduler may run a gang on other nodes than those on which the cluster state has placed it. In the
    state, the slots that the program really holds may therefore be those of a gang. The program is then given other
    slots of the pool in the state, so that the number of free slots in the pool is right.
    """

    node: Node
    holder: Holder
    slots: int
    of_gang: bool = False  # it stands for a gang, which is shown and counted by itself

    @property
    def key(self) -> RequestKey:
        return RequestKey(0, 0, 0, outside=self.holder.name, node=self.node.name)

    def allocation(self, shares: Sequence[Share]) -> Allocation:
        """Return the program's allocation.

        `shares` are the slots that it gets in the cluster state, which may differ from those that it really holds.
        """
        actual = (_share(self.node, range(self.slots)),)
        return Allocation(
            self.key, tuple(shares), self.holder.since, pool=self.node.pool, waiting=self.of_gang, actual=actual
        )


def _programs(cluster: ClusterState, servers: Iterable[Server]) -> Iterator[_Program]:
    """Yield the programs that are no notebook servers, and slots of notebook servers that did not fit on their node."""
    seen = _seen(servers, cluster.nodes.values())
    of_servers = {(node.name, holder.name): name for name, (node, holder) in seen.items()}
    for node, holder in _holders(cluster.nodes.values()):
        name = of_servers.get((node.name, holder.name))
        if name is None:
            yield _Program(node, holder, holder.slots)
        elif (rest := cluster.runs.get(RequestKey(0, 0, 1, name))) is not None:
            yield _Program(node, holder, rest.slots)


def _moved(cluster: ClusterState) -> Iterator[_Program]:
    """Yield stand-ins for gangs whose placement in the cluster state names nodes that no longer exist.

    A stand-in holds the gang's slots on the node where the gang really runs; for a gang that still waits in an external
    queue, on any usable node. A placement can name a node that an autoscaler was to add, but the added node has another
    name.
    """
    for key, run in cluster.runs.items():
        missing = sum(len(share.slots) for share in run.placement if share.node not in cluster.nodes)
        if not missing or not key.is_gang:
            continue
        chosen = [(cluster.nodes[each.node], len(each.slots)) for each in run.actual if each.node in cluster.nodes]
        if run.waiting:
            chosen = [(node, missing) for node in cluster.usable(run.pool)[:1]]
        for node, slots in chosen:
            if (taken := min(missing, slots)) > 0:
                yield _Program(node, Holder(name=str(key), slots=taken, since=run.since), taken, of_gang=True)
                missing -= taken


def _seen(servers: Iterable[Server], nodes: Iterable[Node]) -> Mapping[str, tuple[Node, Holder]]:
    """Return the programs that are notebook servers of the hub: (node, program) by the server's full name."""
    known, found = {server.full_name: server for server in servers}, dict[str, tuple[Node, Holder]]()
    for node, holder in _holders(nodes):
        server = known.get(holder.server)
        if server is not None and (server.slots or node.kind != "cpu"):
            before = found.get(holder.server)
            if before is None or _rank(server, node, holder) < _rank(server, *before):
                found[holder.server] = node, holder
    return found


def _holders(nodes: Iterable[Node]) -> Iterator[tuple[Node, Holder]]:
    return ((node, holder) for node in nodes for holder in node.held_by)


def _rank(server: Server, node: Node, holder: Holder) -> tuple[bool, bool, str, str]:
    return node.kind == "cpu", node.pool != server.pool, node.name, holder.name


def _located(server: Server, node: Node, holder: Holder) -> Server:
    slots = holder.slots if node.kind != "cpu" else server.slots
    return server.model_copy(update={"node": node.name, "pool": node.pool, "slots": slots})


def _shares(cluster: ClusterState, program: _Program) -> Iterator[Share]:
    """Yield free slots for a program: the last slots of its node, then slots of other nodes of the pool."""
    left = program.slots
    for node in _by_preference(cluster, program.node):
        free = cluster.free[node.name]
        slots = free[max(0, len(free) - left) :]  # gangs get the first slots of a node
        if slots:
            left -= len(slots)
            yield _share(node, slots)
        if not left:
            return


def _by_preference(cluster: ClusterState, own: Node) -> Iterator[Node]:
    """Yield a node, then the other nodes of its pool, those with the most free slots first."""
    yield own
    others = sorted(cluster.of_pool(own.pool), key=lambda node: (-len(cluster.free[node.name]), node.name))
    yield from (node for node in others if node.name != own.name)


def _share(node: Node, slots: Iterable[int]) -> Share:
    return Share(node=node.name, kind=node.kind, address=node.address, slots=tuple(slots))
