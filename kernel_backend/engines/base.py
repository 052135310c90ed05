"""Define the interface of an engine: it starts each gang once, finds it again after a restart, and ends it reliably."""

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
    """Capabilities of an engine: tasks that it does itself, so that the service need not do them."""

    atomic_gang: bool
    preemption: bool
    quota: bool
    multi_node: bool
    per_user_identity: bool
    places: bool = True  # Daylight chooses the nodes of a gang; else the engine's own queue does


class GangStatus(Record):
    """Status of a gang as its engine reports it.

    Each status is complete, so that missing an earlier one does no harm.
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
    """Data for the check of a pool: about the service, and about the user who requested the check."""

    python: str  # path of the Python interpreter that runs trainings
    checkpoints: str  # folder or URL of all checkpoints; "" if each owner has their own
    urls: tuple[str, ...]  # addresses of the service, for launchers on other nodes
    user: str = ""  # user who requests the check; only for engines that run gangs as their owners
    probes: CallingProbes | None = None  # probes that may call the service; None in an agent, which serves none


@runtime_checkable
class CheckedEngine(Protocol):
    """Engine that can check its pool."""

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Check the pool, for up to two minutes; return what works and what must be changed, in order of the checks."""


@runtime_checkable
class AllocatingEngine(Protocol):
    """Engine that can keep an allocation of an external queue (such as Slurm's) for several trials of a search."""

    def allocations(self) -> Sequence[HeldAllocation]:
        """Return the allocations that searches have or wait for, as they were at the last call of `statuses`."""

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended.

        An unknown `id` is ignored; `why` is shown to users.
        """


@runtime_checkable
class LimitedEngine(Protocol):
    """Engine whose pool may be limited from outside to fewer slots than its nodes offer, as by Kubernetes' quotas."""

    def limit(self) -> str:
        """Return the limit as a sentence for users; "" if there is none."""


@runtime_checkable
class SharedEngine(Protocol):
    """Engine whose nodes others use, too, and which can read what is free there and what others wait for."""

    async def site_load(self) -> SiteLoad:
        """Return the load of the pool now; raise DaylightError without an answer."""


class Engine(Protocol):
    """Engine: it runs gangs on the nodes of a pool."""

    name: str  # its public name: local, slurm, kubernetes
    caps: Caps

    async def nodes(self) -> Sequence[Node]:
        """Return all nodes of the pool, healthy or not."""

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start the gang of an attempt; a further call for the same attempt starts nothing.

        `token` is the secret with which the gang's launchers authenticate to the service.
        """

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of each gang that was submitted and for which `forget` was not called."""

    async def release(self, key: AttemptId) -> None:
        """Ask a gang to save a checkpoint and exit, without waiting for that.

        An unknown or ended gang is ignored.
        """

    async def kill(self, key: AttemptId) -> None:
        """Kill a gang; return when none of its processes is left.

        Raises Unconfirmed if that cannot be verified.
        """

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of rank 0's records with numbers above `after`, from offset `begin` of its spool file on.

        It is empty if there is no such file. The first page has what launchers measured by the end of the ranks, too.
        Raises OSError and DaylightError if it cannot be read.
        """

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a rank's log from a byte offset on, or its last `tail` bytes; raise NotFound if there is no log.

        Characters are not split: an incomplete one is returned by the next read. A tail starts at the beginning of a
        line, or within the last line if that is longer. The answer's `offset` is the start of the next read.
        """

    async def set_aside(self, key: AttemptId) -> None:
        """Free the key of an attempt for another one, as is needed after the database was restored from a backup.

        The processes of the old attempt are killed and its folder is renamed. Raises Unconfirmed if a process may still
        run.
        """

    async def forget(self, key: AttemptId) -> None:
        """Leave a gang out of `statuses` from now on, as its end has been recorded; its logs stay."""
