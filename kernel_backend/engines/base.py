"""Define the interface of an engine, which starts gangs, finds them again after a restart, and ends them reliably."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from kernel_backend.engines.probing.callers import CallingProbes
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, SpoolPage, SpoolPosition
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.views.overview import LogChunk


class Caps(Record):
    """Capabilities of an engine: what it does itself (such as choosing nodes), so that the service need not do it."""

    atomic_gang: bool
    preemption: bool
    quota: bool
    multi_node: bool
    per_user_identity: bool
    places: bool = True  # Daylight chooses the nodes of a gang; else the engine's own queue does


class GangStatus(Record):
    """Status of a gang (all ranks of an attempt) as its engine reports it.

    Each status is complete in itself, so that it does no harm if the service has not seen earlier ones.
    """

    key: AttemptId
    phase: Literal["pending", "running", "ended"]
    outcome: Outcome | None = None  # when ended
    result: AttemptResult | None = None  # the launcher's record, if it could write one
    token_digest: str = ""  # digest of the attempt's token, since keys may recur; "" if unknown
    reason: str = ""  # why it is pending, in the words of the engine's own queue, such as `Slurm: Resources`


class Unconfirmed(DaylightError):
    """Error: a gang that was killed may still run, so that its slots must not be given to others."""


class EngineUnavailable(DaylightError):
    """Error: the engine does not answer now; nothing is lost, and the call can be repeated later."""

    http_status = 503


class CheckContext(NamedTuple):
    """Facts about the service that a check of a pool needs, and the user who requested the check."""

    python: str  # path of the Python interpreter that runs trainings
    checkpoints: str  # folder or URL of all checkpoints; "" if each owner has their own
    urls: tuple[str, ...]  # addresses of the service, for launchers on other nodes
    user: str = ""  # user who requests the check; only for engines that run gangs as their owners
    probes: CallingProbes | None = None  # probes that may call the service; None in an agent, which serves none
    data: str = ""  # URL of remote data that the nodes read; "": none


@runtime_checkable
class CheckedEngine(Protocol):
    """Engine that can check its pool."""

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Check the pool, which may take two minutes; return good and bad findings in the order of the checks."""


@runtime_checkable
class AllocatingEngine(Protocol):
    """Engine that can keep an allocation (a job of a queue such as Slurm's, or pods) for several trials of a search."""

    keeps: bool  # whether searches can keep allocations in its pool

    def allocations(self) -> Sequence[HeldAllocation]:
        """Return the allocations that searches have or wait for, as of the last call of `statuses`."""

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended.

        An unknown `id` is ignored; `why` is shown to users.
        """


@runtime_checkable
class LimitedEngine(Protocol):
    """Engine whose pool may have fewer slots than its nodes offer, because of a limit such as a Kubernetes quota."""

    def limit(self) -> str:
        """Return a sentence for users about the limit; "" if there is none."""


@runtime_checkable
class SharedEngine(Protocol):
    """Engine whose nodes also run jobs of others; it can read the free slots and the requests that wait for slots."""

    async def site_load(self) -> SiteLoad:
        """Return the free slots of the pool's nodes now, and the requests of others that wait for them.

        Raises DaylightError if the engine does not answer.
        """


class Engine(Protocol):
    """Interface of an engine, which runs gangs on the nodes of one pool."""

    name: str  # its public name: local, slurm, kubernetes
    caps: Caps

    async def nodes(self) -> Sequence[Node]:
        """Return all nodes of the pool, healthy or not."""

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start the gang of an attempt; further calls for the same attempt do nothing.

        `token` is the secret with which the gang's launchers authenticate to the service.
        """

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of each gang that was submitted and for which `forget` was not called."""

    async def release(self, key: AttemptId) -> None:
        """Make a gang save a checkpoint and exit, without waiting for that.

        An unknown or ended gang is ignored.
        """

    async def kill(self, key: AttemptId) -> None:
        """Kill a gang; return when none of its processes is left.

        Raises Unconfirmed if that cannot be verified.
        """

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of the records (reports, checkpoints, ...) that rank 0 of an attempt wrote to its spool file.

        Reading begins at `begin`, an offset in that file, and leaves out records with numbers up to `after`. The page
        is empty if there is no file. The first page also has the final measurements of the launchers. Raises OSError or
        DaylightError if the file cannot be read.
        """

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a rank's log from a byte offset on, or its last `tail` bytes; raise NotFound if there is no log.

        A character whose bytes are not all written yet is left for the next read. A tail starts at the beginning of a
        line, or within the last line if that is longer. The `offset` of the result is where the next read should begin.
        """

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the processes of an attempt and rename its folder, so that another attempt can have its key.

        That is needed after the database was restored from a backup, as new attempts then get keys of earlier ones.
        Raises Unconfirmed if a process may still run.
        """

    async def forget(self, key: AttemptId) -> None:
        """Leave a gang out of `statuses` from now on, as the service has stored its end; its logs are kept."""
