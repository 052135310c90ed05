"""Generate synthetic workloads, or read them from a trace file.

The file is a CSV with a header. A column that is missing has its default, and rows may be in any order:

    arrival,duration,slots,owner,group,priority,one_node,max_time,preemptible
    0,3600,8,ada,vision,0,no,7200,yes

`arrival`, `duration` and `max_time` are seconds (no `max_time`: none), `one_node` and `preemptible` are yes or no.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.resources import LOCAL
from kernel_backend.scheduler.requests import RequestKey, SlotRequest

COLUMNS = ("arrival", "duration", "slots", "owner", "group", "priority", "one_node", "max_time", "preemptible")
_NEEDED = ("arrival", "duration", "slots")
_YES_NO = {"yes": True, "no": False, "": False}


@dataclass(frozen=True)
class Workload:
    """Simulated training: its arrival time, and its duration in seconds on its slots."""

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

    @property
    def key(self) -> RequestKey:
        """Return its key in the scheduler."""
        return RequestKey(self.number, 1)

    def ask(self, queued_at: float) -> SlotRequest:
        """Return its slot request."""
        return SlotRequest(
            self.number,
            1,
            self.slots,
            queued_at,
            owner=self.owner,
            group=self.group,
            priority=self.priority,
            one_node=self.one_node,
            preemptible=self.preemptible,
            max_time=self.max_time,
            pool=self.pool,
        )


def read_trace(path: Path) -> list[Workload]:
    """Return the jobs of a file; raises InvalidRequest with the line and what is wrong with it."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        unknown = set(rows.fieldnames or ()) - set(COLUMNS)
        missing = set(_NEEDED) - set(rows.fieldnames or ())
        if unknown or missing:
            raise InvalidRequest(f"{path}: columns {', '.join(sorted(unknown | missing))} are unknown or missing")
        return [_job(path, number, row) for number, row in enumerate(rows, 1)]


def write_trace(path: Path, jobs: Iterable[Workload]) -> None:
    """Write a file that `read_trace` reads as the same jobs, except for their numbers."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for job in jobs:
            row = {name: getattr(job, name) for name in COLUMNS}
            flags = {name: "yes" if row[name] else "no" for name in ("one_node", "preemptible")}
            rows.writerow(row | flags | {"max_time": "" if job.max_time is None else job.max_time})


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
    """Return jobs of users who submit at rates per second (`users`) for `span` seconds, sometimes twenty at once.

    Durations are lognormal with this `median` in seconds. `sizes` are slots and their frequencies. `bursts` is the
    share of submissions that are twenty jobs, `timed` that of jobs with a `max_time`.
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
