"""Define nodes, slots, and the placement of gangs."""

from __future__ import annotations

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record

LOCAL = "local"  # default pool
CLOSED = "this service runs no code of users on its own machine (slots = none)"


class Holder(Record):
    """Program outside of Daylight that holds slots of a node, such as a pod of another namespace."""

    name: str  # in its engine's words, such as `pod jhub/jupyter-ada`
    slots: int = Field(gt=0)
    since: FiniteFloat = 0.0
    server: str = ""  # full name of the notebook server that it says to be, such as `ada/`


class Node(Record):
    """Node of a pool.

    A slot is one device of `kind`, or one share of the CPUs if there is no device.
    """

    name: str
    kind: str  # cuda, rocm, cpu, ...
    address: str
    slots: int = Field(ge=0)
    cores: int = Field(1, ge=1)
    devices: tuple[str, ...] = ()  # device name per slot, as shown to users; empty for cpu
    device: str = ""  # short name of what a slot is, if it is no whole device of `kind`: `mig-3g.40gb`
    healthy: bool = True
    pool: str = LOCAL
    drained: bool = False  # running gangs continue, no new ones start
    future: bool = False  # not there yet: an autoscaler adds it when gangs wait for it
    suspect: bool = False  # left out for a while, because of what attempts met there
    state: str = ""  # in its engine's words, such as Slurm's `idle` or `down*`
    reason: str = ""  # why it is out of use, in its engine's words
    held_by: tuple[Holder, ...] = ()  # programs outside of Daylight with slots there, as its engine sees them

    @property
    def shown_kind(self) -> str:
        """Return the kind of device that a slot of this node is, as users see it."""
        return self.device or self.kind

    @property
    def usable(self) -> bool:
        """Return whether new gangs may be placed on this node."""
        return self.healthy and not self.drained and not self.suspect

    @property
    def engine_name(self) -> str:
        """Return the node's name in its engine (such as Slurm).

        It lacks the suffix `@pool`, which Daylight adds to the name of a node that belongs to two pools.
        """
        return self.name.removesuffix(f"@{self.pool}")

    @property
    def threads_per_slot(self) -> int:
        """Return the node's cores divided by its slots, at least 1."""
        return max(1, self.cores // max(1, self.slots))


class Share(Record):
    """Slots of one node that a gang holds."""

    node: str
    kind: str
    address: str
    slots: tuple[int, ...]  # indices on that node


Placement = tuple[Share, ...]


def node_of(placement: Placement, rank: int) -> str:
    """Return the name of the node on which a rank of a gang runs; ranks are numbered node by node."""
    owners = [share.node for share in placement for _ in share.slots]
    return owners[rank]
