"""Define the interface of an engine, which starts each gang once, finds it after a restart, and ends it reliably."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, SpoolPage, SpoolPosition
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.views.overview import LogChunk


class Caps(Record):
    """Capabilities that an engine provides itself, so that the service need not."""

    atomic_gang: bool
    preemption: bool
    quota: bool
    multi_node: bool
    per_user_identity: bool
    places: bool = True  # Daylight chooses the nodes of a gang; else the engine's own queue does


class GangStatus(Record):
    """Status of a gang as the engine sees it; a missed status does no harm, since each is complete."""

    key: AttemptId
    phase: Literal["pending", "running", "ended"]
    outcome: Outcome | None = None  # when ended
    result: AttemptResult | None = None  # the launcher's record, if it could write one
    token_digest: str = ""  # of the token in the gang's folder, as another attempt may have the same key; "": unknown
    reason: str = ""  # why it is pending, in the words of the engine's own queue, such as `Slurm: Resources`


class Unconfirmed(DaylightError):
    """Error: a killed gang may still run, so its slots must not be granted to others."""


class EngineUnavailable(DaylightError):
    """Error: the engine does not answer at present; nothing is lost, and the same call may succeed later."""

    http_status = 503


class CheckContext(NamedTuple):
    """Describe the service and its caller for the check of a pool."""

    python: str  # path of the interpreter of trainings
    checkpoints: str  # folder or URL of all checkpoints; "" if each owner has their own
    urls: tuple[str, ...]  # of the service, for launchers on other nodes
    user: str = ""  # who asks, for engines whose gangs are their owners' own


@runtime_checkable
class CheckedEngine(Protocol):
    """Engine that can check its pool."""

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Return what works in the pool and what must be changed, in order; takes up to two minutes."""


class Engine(Protocol):
    """Interface of an engine, which runs gangs on its nodes."""

    name: str  # its public name: local, slurm, kubernetes
    caps: Caps

    async def nodes(self) -> Sequence[Node]:
        """Return all nodes, healthy or not."""

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start the gang of an attempt; idempotent: another call with the same key starts nothing."""

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of every gang that was not forgotten."""

    async def release(self, key: AttemptId) -> None:
        """Ask a gang to commit a checkpoint and exit; return at once. Does nothing for an unknown or ended gang."""

    async def kill(self, key: AttemptId) -> None:
        """Kill a gang, and return when none of its processes is left; raises Unconfirmed if that cannot be verified."""

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of a gang's spool from position `begin` on, with only the records numbered above `after`.

        Without a spool the page is empty. Raises OSError and DaylightError if the spool cannot be read.
        """

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a rank's log from a byte offset, or its last `tail` bytes; raises NotFound.

        Characters are not split: an incomplete one is returned by the next read. A tail starts at the beginning of a
        line, or within the last line if that is longer. The answer's `offset` is the start of the next read.
        """

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the processes in an attempt's folder and rename it, as it belongs to another attempt with the same key.

        Raises Unconfirmed like `kill`.
        """

    async def forget(self, key: AttemptId) -> None:
        """Stop listing a gang whose end is recorded; its logs stay."""
