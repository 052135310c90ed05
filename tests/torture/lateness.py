"""Random histories in which all ends are known: a reserved gang starts by the time at which it could be sure of slots.

    python -m tests.torture.lateness [--histories 10000] [--seed 0]

Every training has a `max_time`, and every user asks once, so that nothing but backfill can make a reservation late. One
that is late by more than a preemptible training needs to commit and go was delayed by a training that passed it.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decisions import Decisions
from kernel_backend.scheduler.requests import Allocation, RequestKey, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.simulation.simulate import SimulationResult, simulate
from kernel_backend.scheduler.simulation.workloads import Workload
from kernel_backend.scheduler.state import ClusterState

RULES = Rules(half_life=3600.0, advance=300.0, min_run=20.0, grace=20.0, soon=60.0, patience=900.0, starving=86400.0)
CHECKPOINT_EVERY = 60.0
SLACK = (
    CHECKPOINT_EVERY + RULES.min_run + RULES.grace
)  # of those who passed: until they may be asked to go, and are gone


@dataclass
class Promises:
    """Latest times by which gangs that were once first in the queue could be sure of their slots."""

    bounds: dict[RequestKey, float] = field(default_factory=dict)
    late: list[tuple[RequestKey, float]] = field(default_factory=list)  # and by how much

    def watch(self, cluster: ClusterState, decisions: Decisions) -> None:
        for start in decisions.starts:
            bound = self.bounds.get(start.request.key)
            if bound is not None and cluster.at > bound + SLACK:
                self.late.append((start.request.key, cluster.at - bound))
        if not decisions.reservations or decisions.reservations[0].key in self.bounds:
            return
        first = decisions.reservations[0]
        runs = [*cluster.runs.values(), *(start.run(cluster.at) for start in decisions.starts)]
        self.bounds[first.key] = _sure(cluster, cluster.queue.requests[first.key], runs, first.node)


def _sure(cluster: ClusterState, request: SlotRequest, runs: list[Allocation], node: str | None) -> float:
    """Return the latest time at which so many slots are free; runs on reserved slots are preempted and do not count."""

    def counted(run: Allocation) -> int:
        return run.slots if node is None else run.by_node[node]

    held = [run for run in runs if not run.passed]
    slots = sum(each.slots for each in cluster.nodes.values() if node is None or each.name == node)
    free, at = slots - sum(map(counted, held)), cluster.at
    for run in sorted(held, key=lambda run: run.ends or 0.0):
        if free >= request.slots:
            break
        free, at = free + counted(run), max(at, run.ends or 0.0)
    return at


def play(seed: int, preemptible: float = 0.5) -> tuple[SimulationResult, Promises]:
    """Simulate one history, in which this fraction of trainings is preemptible."""
    draw = random.Random(seed)
    nodes = [
        Node(name=f"n{at}", kind="cuda", address="", slots=draw.choice((4, 8))) for at in range(draw.randint(1, 3))
    ]
    total = sum(node.slots for node in nodes)
    largest = max(node.slots for node in nodes)
    jobs = [_job(draw, number, total, largest, preemptible) for number in range(1, draw.randint(10, 40))]
    promises = Promises()
    played = simulate(
        jobs, nodes, rules=RULES, checkpoint_every=CHECKPOINT_EVERY, stall=draw.uniform(0.0, 20.0), watch=promises.watch
    )
    return played, promises


def _job(draw: random.Random, number: int, total: int, largest: int, preemptible: float) -> Workload:
    duration = draw.choice((30.0, 120.0, 600.0, 3600.0))
    one_node = draw.random() < 0.2
    return Workload(
        number,
        draw.choice((round(draw.uniform(0, 3000), 1), 60.0 * draw.randint(0, 50))),
        duration,
        min(draw.choice((1, 1, 1, 2, 3, 4, 8, 12)), largest if one_node else total),
        f"u{number}",
        one_node=one_node,
        max_time=duration * draw.choice((1.0, 1.5, 3.0)),
        preemptible=draw.random() < preemptible,
    )


def main() -> None:
    """Simulate histories, and print which reservations were late, and by how much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preemptible", type=float, default=0.5)
    given = parser.parse_args()
    late, reserved, worst = 0, 0, (0.0, "")
    for seed in range(given.seed, given.seed + given.histories):
        _, promises = play(seed, given.preemptible)
        reserved += len(promises.bounds)
        late += bool(promises.late)
        for key, seconds in promises.late:
            worst = max(worst, (seconds, f"{key} of history {seed}"))
    print(f"{given.histories} histories, {reserved} reservations: late in {late}", end="")
    print(f", the most {worst[1]} by {worst[0]:.0f} s" if late else "")
    if late:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
