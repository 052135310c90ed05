"""Define nodes, slots, and the placement of gangs."""

from __future__ import annotations

from pydantic import Field

from kernel_backend.model.record import Record

LOCAL = "local"  # default pool


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
    healthy: bool = True
    pool: str = LOCAL
    drained: bool = False  # running gangs continue, no new ones start
    suspect: bool = False  # left out for a while, because of what attempts met there
    state: str = ""  # in its engine's words, such as Slurm's `idle` or `down*`
    reason: str = ""  # why it is out of use, in its engine's words

    @property
    def usable(self) -> bool:
        """Return whether new gangs may be placed on this node."""
        return self.healthy and not self.drained and not self.suspect

    @property
    def engine_name(self) -> str:
        """Return the node's name in its engine, which lacks the suffix in `n1@pool` of a node in two pools."""
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
