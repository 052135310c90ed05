"""Define faults of nodes, and the suspicion that excludes a node from new gangs for a while."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, FiniteFloat

from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.record import Record

# lost: its ranks and launcher vanished; start: its launcher could not begin; devices: fewer than granted.
FaultKind = Literal["lost", "start", "gpu", "devices", "version", "clock"]
LONGEST_REASON = 300  # characters


class NodeName(NamedTuple):
    """Name of a node with its pool, as nodes of different pools may have the same name."""

    pool: str
    node: str


class NodeFault(Record):
    """Fault that an attempt met on a node: the node was lost, its devices or its clock are wrong, and so on."""

    pool: str
    node: str = Field(max_length=255)  # its name in the engine
    kind: FaultKind
    attempt: str  # such as `12.3-1`, which met it
    at: FiniteFloat
    reason: str = Field(max_length=LONGEST_REASON)

    @property
    def name(self) -> NodeName:
        """Return the name of the node, with its pool."""
        return NodeName(self.pool, self.node)

    @property
    def trial(self) -> tuple[int, int]:
        """Return the experiment's number and the index of the trial that met the fault."""
        key = parse_attempt(self.attempt)
        return key.experiment, key.trial


class Suspicion(Record):
    """Reason why a node is suspect: no gang is started there for a while, unless too many nodes are suspect."""

    since: FiniteFloat
    until: FiniteFloat
    reason: str
    left_out: bool = True  # False: it is used, as half of its pool is left out already


def node_fault(kind: FaultKind, name: NodeName, attempt: AttemptId, at: float, reason: str) -> NodeFault:
    """Return the record of a fault that attempt `attempt` met at time `at`, with `reason` cut to its maximum length."""
    return NodeFault(
        pool=name.pool, node=name.node, kind=kind, attempt=str(attempt), at=at, reason=reason[:LONGEST_REASON]
    )
