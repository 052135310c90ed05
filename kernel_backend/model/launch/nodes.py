"""Define the messages by which the launchers of a gang's nodes coordinate through the service (rendezvous)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import Field

from kernel_backend.model.record import Record
from kernel_backend.model.resources import Placement, Share

MOST_NODES = 10_000


class NodeIndex(NamedTuple):
    """Index of a node in its gang, and the number of nodes that the engine has started for the gang."""

    node: int
    nodes: int


class Device(NamedTuple):
    """Network device of a node, with one of its addresses."""

    name: str
    address: str


class Reached(NamedTuple):
    """Address of node 0 to which a node could connect, and the node's own address in that connection."""

    address: str
    own: str


class NodeOffer(Record):
    """Offer of one node's launcher to run ranks of a gang, repeated until the answer is `go` or `leave`.

    The launcher reserves the offered ports meanwhile. Only node 0 offers ports for torch, Horovod and probes.
    """

    node: int = Field(ge=0, lt=MOST_NODES)
    nodes: int = Field(ge=1, le=MOST_NODES)
    process: str = Field(min_length=8, max_length=64)  # random; distinguishes a second launcher on the node
    name: str = Field(min_length=1, max_length=255)  # the engine's name of the node
    addresses: tuple[Device, ...] = Field(max_length=64)  # the preferred first
    torch_port: int = Field(0, ge=0, lt=65536)
    horovod_port: int = Field(0, ge=0, lt=65536)  # 0: Horovod is not installed, or not wanted
    probe_port: int = Field(0, ge=0, lt=65536)  # where it answers with `process`
    rank_ports: tuple[int, ...] = Field((), max_length=4096)  # one per rank of a command
    kind: str = Field(max_length=32)  # of its devices: cuda, rocm, cpu
    slots: int = Field(ge=0, le=4096)
    devices: tuple[str, ...] = ()
    version: str = Field(max_length=64)  # of Daylight
    clock: float  # its time, in seconds since the epoch
    reached: tuple[Reached, ...] | None = None  # None: it has not tried yet


class GangNode(Record):
    """Node of a gang, as agreed on after all of its launchers have joined (rendezvous)."""

    name: str
    address: str  # by which the other nodes reach it
    kind: str
    slots: int
    devices: tuple[str, ...] = ()
    process: str = ""
    torch_port: int = 0
    horovod_port: int = 0
    probe_port: int = 0
    rank_ports: tuple[int, ...] = ()


def usable_addresses(devices: Iterable[Device], interface: str | None) -> tuple[str, ...]:
    """Return the addresses on which ranks may connect: those of network device `interface`; None: of all."""
    return tuple(device.address for device in devices if interface is None or device.name == interface)


def placement_of(nodes: tuple[GangNode, ...]) -> Placement:
    """Return the placement of a gang whose launchers have joined; each launcher computes the same ranks from it."""
    return tuple(
        Share(node=each.name, kind=each.kind, address=each.address, slots=tuple(range(each.slots))) for each in nodes
    )


class JoinAnswer(Record):
    """Answer to a launcher's offer: wait and try to connect to node 0's addresses, start the ranks, or exit."""

    action: Literal["wait", "go", "leave"]
    reason: str = ""
    outcome: Literal["failed", "lost", "released"] = "lost"  # of the gang, if the action is `leave`
    probe: tuple[str, ...] = ()  # addresses of node 0
    port: int = 0
    process: str = ""  # the text that the probe must return there
    nodes: tuple[GangNode, ...] = ()  # of the gang by number, if the action is `go`


class NodeState(Record):
    """State of a node's ranks, which its launcher sends to the service.

    The service answers when it has another order for the node, at the latest after `wait` seconds.
    """

    node: int = Field(ge=0, lt=MOST_NODES)
    process: str = Field(max_length=64)
    broken: str = Field("", max_length=500)  # why its ranks cannot go on, such as `rank 3 was ended by SIGKILL`
    ended: bool = False
    wait: float = Field(0.0, ge=0.0, le=60.0)


class NodeOrder(Record):
    """Answer of the service to a node's state, for the launcher on this node.

    The launcher continues, ends its ranks since the gang has failed, or exits since its attempt has ended or has been
    replaced by a newer one.
    """

    action: Literal["continue", "end", "leave"] = "continue"
    reason: str = ""
