"""Decide, from the offers of the launchers of a gang's nodes, when they may start their ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from kernel_backend.model.launch.nodes import GangNode, NodeOffer, usable_addresses
from kernel_backend.model.node_faults import FaultKind

REACH_S = 20.0  # time for every node to reach node 0 after all have joined
LOOPBACK = "127.0.0.1"


class Wanted(NamedTuple):
    """Gang whose launchers are joining: the requested slots and nodes, and the settings of its pool."""

    slots: int
    kind: str
    version: str  # version of the service
    interface: str | None = None  # network device by which ranks connect; None if any that works
    join_timeout: float = 300.0  # longest time in seconds between the first launcher and the last


class Pending(NamedTuple):
    """Decision: the gang cannot start yet.

    Some nodes have not joined yet, or have not yet tried to connect to node 0 at the addresses `probe`.
    """

    reason: str
    probe: tuple[str, ...] = ()


class Joined(NamedTuple):
    """Decision: the gang starts on these nodes, which are ordered by their index in the gang."""

    nodes: tuple[GangNode, ...]


class Impossible(NamedTuple):
    """Decision: the gang cannot start; `node` is the name of the node at fault, "" if there is none."""

    reason: str
    outcome: Literal["failed", "lost"]
    node: str = ""
    fault: FaultKind | None = None  # fault of that node; None if it is not at fault


def joined(
    offers: Mapping[int, NodeOffer], wanted: Wanted, waited: float, all_there: float
) -> Pending | Joined | Impossible:
    """Decide whether the gang `wanted` can start, from the offers of its launchers so far, by index of the node.

    An offer has the slots, addresses and version of a node. `waited` is the number of seconds since the first launcher
    joined, `all_there` since the last one joined (0 before that).
    """
    nodes = max(offer.nodes for offer in offers.values())
    if any(offer.nodes != nodes for offer in offers.values()):
        return Impossible("the launchers disagree on the number of nodes", "lost")
    problem = _unfit(offers, wanted)
    if problem is not None:
        return problem
    if len(offers) < nodes:
        there = ", ".join(offers[node].name for node in sorted(offers))
        if waited > wanted.join_timeout:
            late = f"{nodes - len(offers)} of {nodes} nodes have not joined within {wanted.join_timeout:g} s"
            return Impossible(f"{late}; there were {there}", "failed")
        return Pending(f"{len(offers)} of {nodes} nodes have joined: {there}")
    slots = sum(offer.slots for offer in offers.values())
    if slots != wanted.slots:
        shares = ", ".join(f"{offer.name} has {offer.slots}" for _, offer in sorted(offers.items()))
        text = f"{wanted.slots} slots were asked for, and {slots} are there: {shares}"
        lacking = _lacking(offers, wanted)
        return Impossible(text, "failed", lacking, "devices" if lacking else None)
    if nodes == 1:
        return Joined((_node(offers[0], LOOPBACK),))
    return _reachable(offers, wanted, all_there)


def _unfit(offers: Mapping[int, NodeOffer], wanted: Wanted) -> Impossible | None:
    """Return why one of the nodes cannot run its ranks; None if all can.

    A node cannot if it has another version of Daylight, or another kind of slots, than the gang requires.
    """
    for _, offer in sorted(offers.items()):
        if offer.version != wanted.version:
            theirs = f"{offer.name} has Daylight {offer.version}"
            text = f"{theirs}, and the service {wanted.version}: install the same there"
            return Impossible(text, "failed", offer.name, "version")
        if offer.kind != wanted.kind:
            text = f"{offer.name} was to have slots of kind {wanted.kind}, and its launcher finds {offer.kind}"
            return Impossible(text, "failed", offer.name, "devices")
    return None


def _lacking(offers: Mapping[int, NodeOffer], wanted: Wanted) -> str:
    """Return the name of the first node with fewer slots than its equal share of the gang's slots.

    Returns "" if there is none, or if the slots cannot be divided equally: the engine has then chosen the shares.
    """
    if wanted.slots % len(offers):
        return ""
    share = wanted.slots // len(offers)
    return next((offer.name for _, offer in sorted(offers.items()) if offer.slots < share), "")


def wrong_clocks(offers: Collection[NodeOffer], at: float, tolerance: float) -> dict[str, str]:
    """Return descriptions of clocks that differ from the service's, by name of node.

    `at` is the service's time, and a difference of up to `tolerance` is permitted, both in seconds. If the clocks of
    several nodes are all wrong, the service's own clock is suspected and the result is empty.

    Examples
    --------
    >>> fields = {"process": "launcher", "addresses": (), "kind": "cpu", "slots": 1, "version": "1"}
    >>> wrong_clocks([NodeOffer(node=0, nodes=1, name="n1", clock=100.0, **fields)], 400.0, 5.0)
    {'n1': 'the clock of n1 is 300 s behind'}
    """
    ahead = {offer.name: offer.clock - at for offer in offers}
    wrong = {name: by for name, by in ahead.items() if abs(by) > tolerance}
    if len(wrong) == len(ahead) > 1:
        return {}
    return {
        name: f"the clock of {name} is {abs(by):.0f} s {'ahead' if by > 0 else 'behind'}" for name, by in wrong.items()
    }


def _reachable(offers: Mapping[int, NodeOffer], wanted: Wanted, all_there: float) -> Pending | Joined | Impossible:
    """Decide by which address the other nodes reach node 0: the first one to which all of them can connect.

    `all_there` is the number of seconds since the last launcher joined; after a time limit the gang cannot start.
    """
    first, others = offers[0], [offer for number, offer in sorted(offers.items()) if number]
    possible = usable_addresses(first.addresses, wanted.interface)
    if not possible:
        return Impossible(f"{first.name} has no address on network device {wanted.interface}", "failed", first.name)
    reached = [{each.address: each.own for each in offer.reached or ()} for offer in others]
    for address in possible:
        if all(address in found for found in reached):
            own = [_node(offer, found[address]) for offer, found in zip(others, reached, strict=True)]
            return Joined((_node(first, address), *own))
    if all_there <= REACH_S:
        return Pending("the nodes look for an address by which they reach each other", possible)
    cut = [offer.name for offer, found in zip(others, reached, strict=True) if not set(possible) & found.keys()]
    who = ", ".join(cut) if cut else "all others at once"
    tried = ", ".join(possible)
    return Impossible(f"{first.name} cannot be reached from {who}: tried {tried}, port {first.probe_port}", "failed")


def _node(offer: NodeOffer, address: str) -> GangNode:
    return GangNode(
        name=offer.name,
        address=address,
        kind=offer.kind,
        slots=offer.slots,
        devices=offer.devices,
        process=offer.process,
        torch_port=offer.torch_port,
        horovod_port=offer.horovod_port,
        probe_port=offer.probe_port,
        rank_ports=offer.rank_ports,
    )
