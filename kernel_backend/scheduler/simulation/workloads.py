"""Generate synthetic workloads, or read them from a trace file.

The file is a CSV with a header. A column that is missing has its default, and rows may be in any order:

    arrival,duration,slots,owner,group,priority,one_node,max_time,preemptible,least
    0,3600,8,ada,vision,0,no,7200,yes,

`arrival`, `duration` and `max_time` are seconds (no `max_time`: none), `one_node` and `preemptible` are yes or no.
`least` is the least number of slots of an elastic job, and empty for others.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.resources import LOCAL
from kernel_backend.scheduler.elastic import larger_sizes
from kernel_backend.scheduler.requests import RequestKey, SlotRequest

COLUMNS = ("arrival", "duration", "slots", "owner", "group", "priority", "one_node", "max_time", "preemptible", "least")
_NEEDED = ("arrival", "duration", "slots")
_YES_NO = {"yes": True, "no": False, "": False}


@dataclass(frozen=True)
class Workload:
    """Simulated training, with its arrival and its duration.

    Parameters
    ----------
    number : int
        Number of the job; each has its own.
    arrival : float
        Time of submission, in seconds.
    duration : float
        Time that it trains on its slots, in seconds; an elastic job on its largest number of slots.
    slots : int
        Slots that it needs; it starts when it gets all of them.
    owner : str, default "ada"
        User who submits it.
    group : str, default ""
        Group whose quota counts as well.
    priority : int, default 0
        Priority that it requests.
    one_node : bool, default False
        Whether all slots must be on one node.
    max_time : float, optional
        Time limit that it declares, in seconds; short jobs fill gaps.
    preemptible : bool, default True
        Whether it may be preempted.
    pool : str, optional
        Pool of nodes where it queues.
    least : int, optional
        Least number of slots of an elastic job, whose speed is proportional to the number that it has.
    pools : tuple of str, optional
        Several pools where it queues, `pool` among them, the preferred first.

    Examples
    --------
    >>> from daylight.scheduler import Workload
    >>> Workload(1, arrival=0.0, duration=3600.0, slots=8, owner="ada", group="vision").owner
    'ada'
    """

    number: int
    arrival: float
    duration: float
    slots: int
    owner: str = "ada"
    group: str = ""
    priority: int = 0
    one_node: bool = False
    max_time: float | None = None
    preemptible: bool = True
    pool: str = LOCAL
    least: int | None = None
    pools: tuple[str, ...] = ()

    @property
    def key(self) -> RequestKey:
        """Return the key by which the scheduler identifies the job's request."""
        return RequestKey(self.number, 1)

    def request(self, queued_at: float) -> SlotRequest:
        """Return the job's slot request.

        Parameters
        ----------
        queued_at : float
            Time since which it is queued, in seconds.

        Returns
        -------
        SlotRequest
            The request.
        """
        return SlotRequest(
            self.number,
            1,
            self.slots if self.least is None else self.least,
            queued_at,
            larger=() if self.least is None else larger_sizes(self.least, self.slots, None),
            owner=self.owner,
            group=self.group,
            priority=self.priority,
            one_node=self.one_node,
            preemptible=self.preemptible,
            max_time=self.max_time,
            pool=self.pool,
            pools=self.pools,
        )


def read_trace(path: Path) -> list[Workload]:
    r"""Return the jobs of a CSV file.

    Parameters
    ----------
    path : Path
        File with a header. Columns are those of `Workload` without `number` and `pool`; only `arrival`, `duration` and
        `slots` are needed.

    Returns
    -------
    list of Workload
        The jobs, numbered from 1.

    Raises
    ------
    InvalidRequest
        A column or a value is wrong; the message names the line.

    Examples
    --------
    >>> from pathlib import Path
    >>> from daylight.scheduler import read_trace
    >>> written = Path("trace.csv").write_text("arrival,duration,slots,owner\n0,3600,8,ada\n")
    >>> read_trace(Path("trace.csv"))[0].slots
    8
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        unknown = set(rows.fieldnames or ()) - set(COLUMNS)
        missing = set(_NEEDED) - set(rows.fieldnames or ())
        if unknown or missing:
            raise InvalidRequest(f"{path}: columns {', '.join(sorted(unknown | missing))} are unknown or missing")
        return [_job(path, number, row) for number, row in enumerate(rows, 1)]


def write_trace(path: Path, jobs: Iterable[Workload]) -> None:
    """Write a file that `read_trace` reads as the same jobs, except for their numbers.

    Parameters
    ----------
    path : Path
        File to write.
    jobs : iterable of Workload
        Jobs to write.

    Examples
    --------
    >>> from pathlib import Path
    >>> from daylight.scheduler import Workload, read_trace, write_trace
    >>> jobs = [Workload(1, arrival=0.0, duration=3600.0, slots=8)]
    >>> write_trace(Path("trace.csv"), jobs)
    >>> read_trace(Path("trace.csv")) == jobs
    True
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for job in jobs:
            row = {name: getattr(job, name) for name in COLUMNS}
            flags = {name: "yes" if row[name] else "no" for name in ("one_node", "preemptible")}
            empty = {name: "" for name in ("max_time", "least") if row[name] is None}
            rows.writerow(row | flags | empty)


def _job(path: Path, number: int, row: Mapping[str, str | None]) -> Workload:
    given = {name: value.strip() for name, value in row.items() if value is not None}
    try:
        return Workload(
            number,
            float(given["arrival"]),
            float(given["duration"]),
            int(given["slots"]),
            given.get("owner") or "ada",
            given.get("group") or "",
            int(given.get("priority") or 0),
            _YES_NO[given.get("one_node") or ""],
            float(given["max_time"]) if given.get("max_time") else None,
            _YES_NO[given.get("preemptible") or "yes"],
            least=int(given["least"]) if given.get("least") else None,
        )
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f"{path} line {number + 1}: {error} is not what belongs there") from None


def synthetic(
    seed: int,
    users: Mapping[str, float],
    span: float,
    *,
    groups: Mapping[str, str] | None = None,
    sizes: Sequence[tuple[int, float]] = ((1, 0.5), (2, 0.2), (4, 0.15), (8, 0.1), (16, 0.05)),
    median: float = 1800.0,
    spread: float = 1.0,
    bursts: float = 0.1,
    timed: float = 0.3,
    preemptible: float = 1.0,
) -> list[Workload]:
    """Return random jobs of users who submit at given rates, sometimes twenty at once.

    Parameters
    ----------
    seed : int
        Seed of all draws.
    users : mapping of str to float
        Submissions per second of each user.
    span : float
        Time in which users submit, in seconds.
    groups : mapping of str to str, optional
        Group of each user.
    sizes : sequence of tuple of (int, float)
        Numbers of slots, and how frequent each is.
    median : float, default 1800
        Median of the durations, in seconds; they are lognormal, and at most ten times as long.
    spread : float, default 1
        Standard deviation of the durations' logarithm.
    bursts : float, default 0.1
        Fraction of submissions in which a user submits twenty jobs at once.
    timed : float, default 0.3
        Fraction of jobs that declare a `max_time`.
    preemptible : float, default 1
        Fraction of jobs that may be preempted.

    Returns
    -------
    list of Workload
        The jobs in the order of their arrival, numbered from 1.

    Examples
    --------
    >>> from daylight.scheduler import synthetic
    >>> jobs = synthetic(0, {"ada": 4 / 3600, "bob": 1 / 3600}, span=86400.0)
    >>> sorted({job.owner for job in jobs})
    ['ada', 'bob']
    """
    draw = random.Random(seed)
    slots, weights = zip(*sizes, strict=True)
    found: list[tuple[float, str]] = []
    for owner, rate in sorted(users.items()):
        at = draw.expovariate(rate)
        while at < span:
            found += [(at, owner)] * (20 if draw.random() < bursts else 1)
            at += draw.expovariate(rate)
    jobs = []
    for number, (at, owner) in enumerate(sorted(found), 1):
        duration = min(10 * median, draw.lognormvariate(0.0, spread) * median)
        limit = duration * draw.uniform(1.0, 3.0) if draw.random() < timed else None
        size = draw.choices(slots, weights)[0]
        group, may_go = (groups or {}).get(owner, ""), draw.random() < preemptible
        jobs.append(Workload(number, at, duration, size, owner, group, max_time=limit, preemptible=may_go))
    return jobs
