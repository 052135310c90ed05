"""Assign ranks to slots; every launcher computes the same assignment from the slots of all nodes of the gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernel_backend import devices
from kernel_backend.model.resources import Placement


class RankAssignment(NamedTuple):
    """Numbers of a rank: among all ranks of its gang, on its node (`local_rank`), and across nodes (`cross_rank`).

    `cross_rank` is its index among the ranks of all nodes that have the same local rank.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    node: str
    node_number: int
    kind: str
    slot: int


class RendezvousInfo(NamedTuple):
    """Addresses and ports at which the ranks of one attempt find each other; no other attempt uses these ports."""

    address: str  # address of node 0
    interface: str | None  # network device of this node for gloo; None: gloo chooses
    torch_port: int
    horovod_port: int | None  # None if Horovod is not installed
    workers: tuple[str, ...] = ()  # `address:port` per rank of a command, for TensorFlow


def rank_assignments(placement: Placement) -> list[RankAssignment]:
    """Return the assignment of each rank in order of rank: slot by slot on the first node, then on the next."""
    size = sum(len(share.slots) for share in placement)
    found: list[RankAssignment] = []
    for number, share in enumerate(placement):
        for local, slot in enumerate(share.slots):
            peers = [n for n, other in enumerate(placement) if len(other.slots) > local]
            found.append(
                RankAssignment(
                    rank=len(found),
                    size=size,
                    local_rank=local,
                    local_size=len(share.slots),
                    cross_rank=peers.index(number),
                    cross_size=len(peers),
                    node=share.node,
                    node_number=number,
                    kind=share.kind,
                    slot=slot,
                )
            )
    return found


def interface_of(address: str) -> str | None:
    """Return the network device that gloo must use for this address: loopback if it is a local one, else None.

    With None, gloo chooses the device.
    """
    return "lo" if address.startswith("127.") else None


def process_env(base: Mapping[str, str], assignment: RankAssignment, common: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a rank, without the variables by which it finds its peers, which are added later.

    It consists of `base`, the variables `common` to all ranks, and variables that make only the rank's own device
    visible, such as CUDA_VISIBLE_DEVICES.
    """
    return {**base, "PYTHONUNBUFFERED": "1", **common, **devices.visible(assignment.kind, (assignment.slot,))}
