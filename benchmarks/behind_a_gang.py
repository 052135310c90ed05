"""Measure idle slots behind a reserved gang, and how often a training backfilled by a forecast makes it late.

    python benchmarks/behind_a_gang.py [--gangs 20] [--seed 0] [--risks 0,0.05]

A simulation of 16 slots under endless demand of trainings of one slot without `--max-time`, by eight users whose median
durations lie between five minutes and four hours (lognormal, with a `spread`). Every two days a user requests a gang of
half of the slots or of all. `idle` is the share of all slots that is idle between the reservation and the start of the
gang. A gang is late if it starts after the time at which the runs that held slots at its reservation have freed enough.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decisions import Decisions
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.simulation.simulate import simulate
from kernel_backend.scheduler.simulation.workloads import Workload
from kernel_backend.scheduler.state import ClusterState

MEDIANS = (300.0, 600.0, 900.0, 1800.0, 1800.0, 3600.0, 7200.0, 14400.0)  # of the users
EVERY = 48 * 3600.0
GANG = 1_000_000  # the numbers of gangs begin here


@dataclass
class Observation:
    """Record of each gang's reservation: when it was made, the idle slots, and how late the gang started.

    Late is compared with the start if nothing had been backfilled, that is, started ahead of the gang in free slots.
    """

    slots: int
    ends: dict[int, float]  # by job: how long it takes
    capacity_at: dict[RequestKey, float] = field(default_factory=dict)
    idle: dict[RequestKey, float] = field(default_factory=dict)  # slot-seconds
    since: dict[RequestKey, float] = field(default_factory=dict)
    late: dict[RequestKey, float] = field(default_factory=dict)
    parts: list[float] = field(default_factory=list)  # of the slots that were idle, by gang
    before: tuple[float, int] = (0.0, 0)

    def watch(self, cluster: ClusterState, decisions: Decisions) -> None:
        now, (then, free) = cluster.at, self.before
        for key in self.since:
            if key not in self.late:
                self.idle[key] += free * (now - then)
        for start in decisions.starts:
            key = start.request.key
            if key in self.since:
                self.late[key] = now - self.capacity_at[key]
                if now > self.since[key]:
                    self.parts.append(self.idle[key] / (self.slots * (now - self.since[key])))
        for each in decisions.reservations:
            if each.key.experiment >= GANG and each.key not in self.since:
                self.since[each.key], self.idle[each.key] = now, 0.0
                self.capacity_at[each.key] = self._capacity(cluster, decisions, cluster.queue.requests[each.key].slots)
        taken = sum(start.request.slots for start in decisions.starts)
        self.before = now, sum(map(len, cluster.free.values())) - taken

    def _capacity(self, cluster: ClusterState, decisions: Decisions, slots: int) -> float:
        """Return the time at which `slots` slots will be free, if nothing else is started."""
        runs = [*cluster.runs.values(), *(start.run(cluster.at) for start in decisions.starts)]
        free, at = self.slots - sum(run.slots for run in runs), cluster.at
        for end, count in sorted((run.since + self.ends[run.key.experiment], run.slots) for run in runs):
            if free >= slots:
                break
            free, at = free + count, end
        return at


def trace(slots: int, gangs: int, seed: int, spread: float) -> list[Workload]:
    """Return arrivals that exceed the capacity: more plain trainings than can run, and a gang every two days."""
    draw = random.Random(seed)
    until = EVERY * (gangs + 1)
    jobs = []
    for nth, median in enumerate(MEDIANS):
        mean_length, at = median * exp(spread * spread / 2), 0.0
        while at < until:
            length = min(20 * median, draw.lognormvariate(0.0, spread) * median)
            jobs.append(Workload(len(jobs) + 1, at, length, 1, f"u{nth}", preemptible=False))
            at += draw.expovariate(1.3 * slots / len(MEDIANS) / mean_length)
    for nth in range(gangs):
        size = slots if nth % 2 else slots // 2
        jobs.append(Workload(GANG + nth, EVERY * (nth + 1), 1800.0, size, f"gang{nth}", preemptible=False))
    return jobs


def measure(slots: int, gangs: int, seed: int, risk: float, spread: float) -> str:
    nodes = [Node(name=f"n{nth:03}", kind="cuda", address="", slots=8) for nth in range(slots // 8)]
    jobs = trace(slots, gangs, seed, spread)
    seen = Observation(slots, {job.number: job.duration for job in jobs})
    until = EVERY * (gangs + 1)
    played = simulate(jobs, nodes, rules=Rules(risk=risk), until=until, watch=seen.watch)
    late = [seconds for seconds in seen.late.values() if seconds > 1.0]
    waits = [played.waits[key.experiment] for key in seen.late]
    useful = sum(played.jobs[interval.job].slots * (interval.ended - interval.begun) for interval in played.intervals)
    return (
        f"{slots:5} {risk:5.2f} {len(seen.parts):6} {100 * mean(seen.parts):8.1f} % {100 * max(seen.parts):6.1f} % "
        f"{100 * useful / slots / until:9.1f} % {mean(waits) / 60:10.0f} m {100 * len(late) / len(seen.late):8.1f} % "
        f"{mean(seen.late.values()) / 60:9.1f} m {max(seen.late.values()) / 60:6.0f} m"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gangs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spreads", default="0.3,0.6,1.0", help="of the lognormal lengths of a user")
    parser.add_argument("--risks", default="0,0.05")
    parser.add_argument("--slots", default="16")
    given = parser.parse_args()
    print("spread slots  risk  gangs  idle mean  worst  slots used  mean wait   late   mean delay  worst")
    each = ((int(slots), float(spread)) for slots in given.slots.split(",") for spread in given.spreads.split(","))
    for slots, spread in each:
        for risk in map(float, given.risks.split(",")):
            print(f"{spread:6} {measure(slots, given.gangs, given.seed, risk, spread)}", flush=True)


if __name__ == "__main__":
    main()
