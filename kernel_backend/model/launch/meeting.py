"""Define how the launchers of a gang's nodes meet through the service, before and while their ranks run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_backend.model.record import Record
from kernel_backend.model.resources import Placement, Share

MOST_NODES = 10_000


class NodeOffer(Record):
    """Offer of a node's launcher to take part in a gang, sent again until the answer is `go` or `leave`.

    The launcher has reserved `ports`: on every node one per rank, before these on node 0 one for torch and one for
    Horovod.
    """

    node: int = Field(ge=0, lt=MOST_NODES)  # number of the node in the gang
    nodes: int = Field(ge=1, le=MOST_NODES)  # number of nodes that the engine has started
    process: str = Field(min_length=8, max_length=64)  # random, so that a second launcher of the node is told apart
    name: str = Field(max_length=255)  # host name
    addresses: tuple[str, ...] = Field(max_length=64)  # of its network devices, the preferred first
    ports: tuple[int, ...] = Field((), max_length=4096)
    kind: str = Field(max_length=32)  # of its devices: cuda, rocm, cpu
    slots: int = Field(ge=0, le=4096)
    devices: tuple[str, ...] = ()
    version: str = Field(max_length=64)  # of Daylight
    python: str = Field("", max_length=64)  # version
    clock: float = 0.0  # its time, in seconds since the epoch
    reached: tuple[str, ...] | None = None  # addresses of node 0 that could be connected to; None: not tried yet


class GangNode(Record):
    """A node of a gang whose launchers have met."""

    name: str
    address: str  # by which the other nodes reach it
    kind: str
    slots: int
    devices: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()  # one per rank
    process: str = ""


class Meeting(Record):
    """Agreement of a gang's launchers: its nodes, in order of their numbers, and where ranks connect."""

    nodes: tuple[GangNode, ...]
    torch_port: int  # on node 0
    horovod_port: int  # on node 0

    @property
    def placement(self) -> Placement:
        """Return the actual placement, from which every launcher computes the same ranks."""
        return tuple(
            Share(node=each.name, kind=each.kind, address=each.address, slots=tuple(range(each.slots)))
            for each in self.nodes
        )


class Answer(Record):
    """Answer to a node's offer: wait (and try these addresses of node 0), start the ranks, or exit."""

    action: Literal["wait", "go", "leave"]
    reason: str = ""
    probe: tuple[str, ...] = ()  # addresses of node 0 to connect to
    port: int = 0  # the port of node 0 for that
    meeting: Meeting | None = None  # if the action is `go`


class NodeState(Record):
    """State of a node's ranks, sent again and again; the answer comes when there is news, or after a while."""

    node: int = Field(ge=0, lt=MOST_NODES)
    process: str = Field(max_length=64)
    broken: str = Field("", max_length=500)  # why its ranks cannot go on, such as `rank 3 was ended by SIGKILL`
    ended: bool = False


class NodeOrder(Record):
    """Answer to a node's state: go on, end the ranks because the gang is broken, or leave a fenced attempt."""

    action: Literal["continue", "end", "leave"] = "continue"
    reason: str = ""
