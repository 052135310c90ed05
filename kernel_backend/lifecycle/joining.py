"""Decide when the launchers of a gang's nodes may start their ranks: pure functions of the launchers' offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from kernel_backend.model.launch.nodes import GangNode, NodeOffer, usable_addresses

REACH_S = 20.0  # for every node to reach node 0, after all have joined
LOOPBACK = "127.0.0.1"


class Wanted(NamedTuple):
    """Describe the requested gang, with the settings of its pool."""

    slots: int
    kind: str
    version: str  # of the service
    interface: str | None = None  # network device by which ranks connect; None: one that works
    join_timeout: float = 300.0  # seconds from the first launcher to the last


class Pending(NamedTuple):
    """The gang cannot start yet: nodes are missing, or have not tried these addresses of node 0."""

    reason: str
    probe: tuple[str, ...] = ()


class Joined(NamedTuple):
    """The gang starts on these nodes, in order of their numbers."""

    nodes: tuple[GangNode, ...]


class Impossible(NamedTuple):
    """The gang cannot start; `node` is the name of the node that is the cause, "" if there is none."""

    reason: str
    outcome: Literal["failed", "lost"]
    node: str = ""


def joined(
    offers: Mapping[int, NodeOffer], wanted: Wanted, waited: float, all_there: float
) -> Pending | Joined | Impossible:
    """Return whether a gang can start with the offers so far, given by number of node.

    `waited` and `all_there` are the seconds since the first launcher has joined, and since all have (0 before that).
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
        return Impossible(f"{wanted.slots} slots were asked for, and {slots} are there: {shares}", "failed")
    if nodes == 1:
        return Joined((_node(offers[0], LOOPBACK),))
    return _reachable(offers, wanted, all_there)


def _unfit(offers: Mapping[int, NodeOffer], wanted: Wanted) -> Impossible | None:
    """Return why one of the nodes cannot take part, regardless of the others' offers."""
    for _, offer in sorted(offers.items()):
        if offer.version != wanted.version:
            theirs = f"{offer.name} has Daylight {offer.version}"
            text = f"{theirs}, and the service {wanted.version}: install the same there"
            return Impossible(text, "failed", offer.name)
        if offer.kind != wanted.kind:
            text = f"{offer.name} was to have slots of kind {wanted.kind}, and its launcher finds {offer.kind}"
            return Impossible(text, "failed", offer.name)
    return None


def _reachable(offers: Mapping[int, NodeOffer], wanted: Wanted, all_there: float) -> Pending | Joined | Impossible:
    """Choose the first address of node 0 that every other node reaches."""
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
