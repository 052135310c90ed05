"""Define the requests to probes, the programs that test each node of a pool in `pool check`, and their answers."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field

from kernel_backend.model.launch.nodes import MOST_NODES, Device, Reached
from kernel_backend.model.record import Record


class Versions(Record):
    """Versions of the packages that a training needs; "" for a package that is not installed."""

    daylight: str
    python: str
    torch: str


class ProbeRequest(Record):
    """Request to the probes, the programs that test the nodes of a pool: what to test.

    It holds no secret: `nonce` only identifies the probes' output lines and ports.
    """

    nonce: str = Field(min_length=8, max_length=64)
    home: str
    folder: str  # in the home, made for this check; a file `nonce` in it holds the nonce
    checkpoints: str = ""  # folder or URL of all checkpoints; "": not checked
    urls: tuple[str, ...] = ()  # addresses of the service for launchers
    host: str = ""  # host name of the service's machine
    data: str = ""  # URL of remote data to read; "": none


class WriteTest(Record):
    """Result of a test whether files can be written to a folder.

    `problem` is "" if they can; `missing` is True if there is no such folder.
    """

    problem: str = ""
    missing: bool = False
    free: int = 0  # bytes


class DataTest(Record):
    """Result of reading remote data; `todo` says how to fix a problem, and is empty if there is none."""

    says: str
    todo: str = ""


class ServiceTest(NamedTuple):
    """Result of a request from a tested node to one address of the service; `problem` is "" if the service answered."""

    url: str
    problem: str


class PeerAddresses(Record):
    """First order to the programs that test the nodes of a pool (probes): connect to node 0.

    Each tries these addresses of node 0, to find one that works.
    """

    addresses: tuple[str, ...]
    port: int


class AllReduceOrder(Record):
    """Second order to the programs that test a pool's nodes (probes): run an all-reduce together.

    `address` is the address of node 0; if it is "", the probes exit.
    """

    address: str = ""
    port: int = 0


class AllReduceResult(Record):
    """Result of the all-reduce as seen by one node; `problem` is "" if it succeeded."""

    problem: str = ""
    seconds: float = 0.0  # of one all-reduce
    size: int = 0  # bytes
    own: str = ""  # this node's address
    device: str = ""  # network device


class ProbeCredentials(Record):
    """Request to the probe in a pod (the program that tests its node), with its secret for calls to the service.

    It is stored only in a Kubernetes Secret.
    """

    request: ProbeRequest
    token: str
    uid: int | None = None  # Unix user id of the service


class ProbeReport(Record):
    """Message to the service from a probe, the program that tests a node: its results so far, by field of NodeProbe."""

    node: int = Field(ge=0, lt=MOST_NODES)
    answers: dict[str, Any] = {}
    orders: int = Field(0, ge=0, le=2)  # how many it has received
    wait: float = Field(0.0, ge=0, le=60.0)  # seconds to wait for the next one


class ProbeOrders(Record):
    """Orders given so far to the probes, the programs that test a pool's nodes; None: the order is not given yet."""

    peer: PeerAddresses | None = None
    all_reduce: AllReduceOrder | None = None

    @property
    def count(self) -> int:
        """Return the number of orders given so far."""
        return sum(each is not None for each in (self.peer, self.all_reduce))


class NodeProbe(Record):
    """Results of one node's probe, the program that tests the node.

    They are sent one by one, so that the earlier ones are known if the probe hangs.
    """

    node: int
    name: str = ""
    versions: Versions | None = None
    home: WriteTest | None = None
    checkpoints: WriteTest | None = None
    service: tuple[ServiceTest, ...] = ()
    unresolved: str = ""  # why the service's host name has no address; "": it has one
    kind: str = ""  # of its devices
    devices: tuple[str, ...] = ()
    cores: int = 0
    devices_problem: str = ""
    data: DataTest | None = None
    addresses: tuple[Device, ...] = ()
    probe_port: int = 0
    torch_port: int = 0
    clock: float | None = None  # its time between `sent` and `received`, both by the service's clock
    sent: float = 0.0
    received: float = 0.0
    reached: tuple[Reached, ...] | None = None
    all_reduce: AllReduceResult | None = None
