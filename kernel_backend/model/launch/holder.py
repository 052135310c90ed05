"""Define the reports of holders (programs in pods that a search keeps) to the service, and the orders that they get."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_backend.model.launch.nodes import MOST_NODES
from kernel_backend.model.record import Record

HOLDER = "DAYLIGHT_HOLDER"  # environment variable of a pod, with HolderCredentials


class HolderCredentials(Record):
    """Configuration of the holder, the program that runs in the pods of an allocation and starts gangs there.

    It has the allocation's id and the holder's secret for calls to the service, so it is stored only in a Kubernetes
    Secret.
    """

    allocation: str  # its id
    token: str
    urls: tuple[str, ...]  # addresses of the service
    uid: int | None = None  # Unix user id of the service
    home: str = ""  # the service's home, where its newest addresses are; "" if the node does not see it
    idle: float  # seconds without a gang after which the allocation is given back
    seconds: float  # length of the allocation


class HolderEvent(Record):
    """Event on one node of an allocation, such as the end of a gang; sending it twice has no further effect."""

    event: Literal["begun", "started", "ended", "closed"]
    at: float
    key: str = Field("", max_length=500)  # name of the gang that has started or ended
    code: int | None = None  # exit code of its launcher; None if it never began
    why: str = Field("", max_length=2000)  # why the holder exits


class HolderReport(Record):
    """Message of a holder (program in a pod of a kept allocation) to the service.

    It has the new events on the holder's node, and how many orders the holder has received.
    """

    node: int = Field(ge=0, lt=MOST_NODES)
    events: tuple[HolderEvent, ...] = Field((), max_length=100)
    orders: int = Field(0, ge=0)  # how many it has received
    wait: float = Field(0.0, ge=0, le=60.0)  # seconds to wait for the next one


class HolderOrder(Record):
    """Order to a holder (program in a pod of a kept allocation), for example to start a gang on its node.

    An order to start has the launcher's command, and in `environment` the attempt's secret.
    """

    order: Literal["start", "release", "kill", "close", "withdrawn"]  # withdrawn: a start that is void
    key: str = ""  # name of the gang
    why: str = ""  # why the allocation is to be given back
    command: tuple[str, ...] = ()  # of the launcher on this node
    cwd: str = "/"
    environment: dict[str, str] = {}  # variables of the launcher, besides those of the holder


class HolderOrders(Record):
    """Answer to a report of a holder (program in a pod of a kept allocation): orders that it has not received yet."""

    orders: tuple[HolderOrder, ...] = ()
