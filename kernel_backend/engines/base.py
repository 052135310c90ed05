"""Define the interface of an engine: start gangs once by key, find them after a restart, and end them surely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from kernel_backend.errors import DaylightError
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, SpoolPage, SpoolPosition
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.views.overview import LogChunk


class Caps(Record):
    """Capabilities that an engine has itself, so that the service need not provide them."""

    atomic_gang: bool
    preemption: bool
    quota: bool
    multi_node: bool
    per_user_identity: bool


class GangStatus(Record):
    """Status of a gang as the engine sees it; each is complete, so that a missed one does no harm."""

    key: AttemptId
    phase: Literal["pending", "running", "ended"]
    outcome: Outcome | None = None  # when ended
    result: AttemptResult | None = None  # the launcher's own record, where it lived to write one
    token_digest: str = ""  # of the token in its folder: a gang of another attempt may have the same key; "": unknown


class Unconfirmed(DaylightError):
    """Error: a killed gang may still run, so its slots must not be granted to others."""


class Engine(Protocol):
    """Interface of an engine, which runs gangs on its nodes."""

    name: str  # its public name: local, slurm, kubernetes
    caps: Caps

    async def nodes(self) -> Sequence[Node]:
        """Return all nodes, healthy or not."""

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start the gang of an attempt; idempotent: a second call with the same key starts nothing."""

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of every gang of this engine that was not forgotten."""

    async def release(self, key: AttemptId) -> None:
        """Ask the gang to commit a checkpoint and exit; returns at once. Does nothing for an unknown or ended gang."""

    async def kill(self, key: AttemptId) -> None:
        """Kill the gang and return when no process of it is left; raises Unconfirmed where that cannot be verified."""

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of a gang's spool from `begin` on, with records above number `after`, which were not posted.

        Without a spool the page is empty, and the last. Raises OSError and DaylightError where it cannot be read.
        """

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a rank's log from a byte offset, or its last `tail` bytes; raises NotFound.

        Characters are not split: one that is not fully written yet comes with the next read. A tail begins at the start
        of a line, or within the last line if that is longer. `offset` of the answer is where the next read begins.
        """

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the processes in an attempt's folder, and rename the folder: it belongs to another attempt.

        Raises Unconfirmed as `kill` does.
        """

    async def forget(self, key: AttemptId) -> None:
        """Stop listing a gang whose end has been recorded. Its logs stay."""
