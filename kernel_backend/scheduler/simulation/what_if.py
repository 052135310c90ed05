"""Simulate a workload under hypothetical quotas, and report how long each user waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.resources import Node
from kernel_backend.scheduler.simulation import simulate as events
from kernel_backend.scheduler.simulation.metrics import held
from kernel_backend.scheduler.simulation.workloads import Workload


@dataclass(frozen=True)
class Waits:
    """Waits of one user's jobs in a simulation.

    Parameters
    ----------
    jobs : int
        Number of jobs that arrived.
    started : int
        Number of jobs that got slots. For the other jobs, `median` and `longest` count the wait until the end of the
        simulation.
    median : float
        Median of the waits from arrival to first start, in seconds.
    longest : float
        Longest wait, in seconds.
    slot_hours : float
        Slot-hours (slots times hours) that the jobs held in total.

    Examples
    --------
    >>> from daylight.scheduler import Waits
    >>> Waits(jobs=2, started=2, median=1800.0, longest=3600.0, slot_hours=16.0).longest
    3600.0
    """

    jobs: int
    started: int
    median: float
    longest: float
    slot_hours: float


def simulate(
    jobs: Iterable[Workload],
    slots: Mapping[str, int],
    *,
    users: Mapping[str, Quota] | None = None,
    groups: Mapping[str, Quota] | None = None,
    until: float = float("inf"),
) -> dict[str, Waits]:
    """Simulate a workload with the scheduler of the service, and return how long each user waits.

    The same arguments give the same result. A preempted job saves its work, for which it holds its slots 10 s longer.

    Parameters
    ----------
    jobs : iterable of Workload
        Jobs with arrival, duration, slots, owner and group; `read_trace` reads them from a file.
    slots : mapping of str to int
        Slots of each node by its name.
    users : mapping of str to Quota, optional
        Quotas of users by name; without one a user has weight 1 and no limit.
    groups : mapping of str to Quota, optional
        Quotas of groups by name; a job counts for its user and for its group.
    until : float, optional
        Time at which to end, in seconds; by default when all jobs are done.

    Returns
    -------
    dict of str to Waits
        Waits by user, in the order of names.

    Examples
    --------
    What would happen if the limit of group vision were 8?

    >>> from daylight.scheduler import Quota, Workload, simulate
    >>> jobs = [Workload(1, 0.0, 3600.0, 8, "ada", "vision"), Workload(2, 60.0, 3600.0, 8, "bob", "vision")]
    >>> for quota in (Quota(), Quota(limit=8)):
    ...     found = simulate(jobs, {"gpu1": 8, "gpu2": 8}, groups={"vision": quota})
    ...     print(quota.limit, found["ada"].longest, found["bob"].longest)
    None 0.0 0.0
    8 0.0 3540.0
    """
    nodes = [Node(name=name, kind="cuda", address=name, slots=count) for name, count in slots.items()]
    played = events.simulate([*jobs], nodes, users=users, groups=groups, until=until)
    held_seconds = held(played, 0.0, played.until)
    came: dict[str, list[Workload]] = {}
    for job in played.jobs.values():
        if job.arrival <= played.until:
            came.setdefault(job.owner, []).append(job)
    return {
        owner: _waits(mine, [played.waits.get(job.number) for job in mine], played.until, held_seconds[owner])
        for owner, mine in sorted(came.items())
    }


def _waits(jobs: list[Workload], waits: list[float | None], until: float, seconds: float) -> Waits:
    """Summarise the waits of a user's jobs, in seconds; a wait of None means that the job never started.

    `until` is the end of the simulation, and `seconds` are the slot-seconds that the jobs held.
    """
    times = [until - job.arrival if wait is None else wait for job, wait in zip(jobs, waits, strict=True)]
    started = sum(wait is not None for wait in waits)
    return Waits(len(jobs), started, median(times), max(times), seconds / 3600.0)
