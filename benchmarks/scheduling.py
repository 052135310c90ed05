"""Measure the time of a scheduling decision, and fairness and utilisation of a cluster beside other policies.

    python benchmarks/scheduling.py [--days 2] [--seed 0] [--sizes 1000,10000,100000]

Decision: 1,250 nodes of 8 slots, 1,000 users in 20 groups, all slots held except those of ten gangs that have just
ended; CPU time, the median of 20 decisions. The last column is the time after a hundred gangs have ended.

Fairness: 12 users on 256 slots for days, who all request more than their share; one submits ten times as many jobs as
the others, one has a higher priority (if the policy has priorities), two have twice the weight. The result is Jain's
index of weighted slot-seconds over windows of six hours, without the first window.

Utilisation: 20 users within their shares, about 95 % load, gangs of 1 to 64 slots, bursts; the result is the work done
as a share of an upper bound for all schedules. All policies get the same jobs, in
`kernel_backend/scheduler/simulation/simulate.py`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders.policies import POLICIES
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Decisions
from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.simulation.metrics import fairness, utilisation, waits
from kernel_backend.scheduler.simulation.simulate import simulate
from kernel_backend.scheduler.simulation.workloads import Workload, synthetic
from kernel_backend.scheduler.state import ClusterState

ROUNDS = 20
WINDOW = 6 * 3600.0
SIZES = ((1, 0.4), (2, 0.2), (4, 0.15), (8, 0.15), (16, 0.06), (32, 0.03), (64, 0.01))
WEIGHTS = {f"u{nth:02}": 2.0 if nth in (3, 4) else 1.0 for nth in range(12)}


def cluster(count: int) -> list[Node]:
    return [Node(name=f"n{nth:04}", kind="cuda", address=f"10.0.0.{nth}", slots=8) for nth in range(count)]


def asks(count: int) -> list[SlotRequest]:
    draw = random.Random(0)
    return [
        SlotRequest(
            nth,
            1,
            draw.choice((1, 2, 4, 8, 8, 16, 32)),
            float(nth),
            owner=f"u{draw.randrange(1000)}",
            group="",
            preemptible=draw.random() < 0.5,
            max_time=draw.choice((None, None, 3600.0, 86400.0)),
            one_node=draw.random() < 0.1,
        )
        for nth in range(count)
    ]


def carry_out(picture: ClusterState, decisions: Decisions) -> None:
    picture.reservations = decisions.reservations
    for start in decisions.starts:
        picture.hold(start.run(picture.at))


def decision_times(queued: int) -> tuple[float, float, float, int]:
    """Return the milliseconds of decisions, and the number of gangs that run.

    The decisions are those from an empty cluster, after ten ends and after a hundred.
    """
    draw = random.Random(1)
    quotas = {f"g{nth}": Quota(guarantee=200, limit=2000) for nth in range(20)}
    many = [replace(request, group=f"g{int(request.owner[1:]) % 20}") for request in asks(queued + 1500)]
    picture = ClusterState(cluster(1250), (), many, at=float(len(many)), groups=quotas)
    began = time.process_time()
    carry_out(picture, decide(picture))
    first = time.process_time() - began

    def median_of(ended: int) -> float:
        took = []
        for _ in range(ROUNDS):
            for key in draw.sample(sorted(picture.runs), min(ended, len(picture.runs))):
                picture.let_go(key)
            picture.pass_to(picture.at + 60.0)
            began = time.process_time()
            decisions = decide(picture)
            took.append(time.process_time() - began)
            carry_out(picture, decisions)
        return 1000 * median(took)

    return 1000 * first, median_of(10), median_of(100), len(picture.runs)


def policies() -> dict[str, Callable[[], Callable[[ClusterState], Decisions]]]:
    return {"ours": lambda: decide, **POLICIES}


def fair_trace(days: float, seed: int) -> list[Workload]:
    """Return a trace in which each user requests more than a fair share of the cluster.

    Each requests a sixth of the cluster, but the first five thirds of it, and the second has a higher priority.
    """
    work = 4.55 * 1.649 * 1800.0 * 2.9  # slot-seconds of a submission: mean size, mean of the lognormal, bursts
    rate = 256 / 6 / work
    users = {name: rate * (10 if name == "u00" else 2 if WEIGHTS[name] > 1 else 1) for name in WEIGHTS}
    jobs = synthetic(seed, users, days * 86400.0, sizes=SIZES[:6])
    return [replace(job, priority=1) if job.owner == "u01" else job for job in jobs]


def busy_trace(days: float, seed: int) -> list[Workload]:
    """Return a trace of twenty users with a load of about 95 %."""
    work = 5.2 * 1.649 * 1800.0 * 2.9
    return synthetic(seed, {f"u{nth:02}": 1.06 * 256 / 20 / work for nth in range(20)}, days * 86400.0, sizes=SIZES)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", default="1000,10000,100000")
    given = parser.parse_args()

    print("queued   running   empty cluster   10 ends   100 ends   (ms a decision)")
    for size in map(int, given.sizes.split(",")):
        first, few, more, running = decision_times(size)
        print(f"{size:6} {running:9} {first:15.1f} {few:9.1f} {more:10.1f}", flush=True)

    until = given.days * 86400.0
    fair, busy = fair_trace(given.days, given.seed), busy_trace(given.days, given.seed)
    load = sum(job.slots * job.duration for job in busy) / 256 / until
    print(f"\n{len(fair)} and {len(busy)} jobs; load of the second {load:.2f}")
    print(f"{'':28} Jain mean  lowest | useful of bound  mean wait  99 %  longest  preempted")
    for name, make in policies().items():
        quotas = {user: Quota(weight=weight, priority=name == "plain priority") for user, weight in WEIGHTS.items()}
        shared = simulate(fair, cluster(32), make(), users=quotas, until=until)
        filled = simulate(busy, cluster(32), make(), until=until)
        index = fairness(shared, WINDOW, WEIGHTS, begun=WINDOW)
        waited = waits(filled)
        print(
            f"{name:28} {mean(index):9.3f} {min(index):7.3f} | {100 * utilisation(filled):13.1f} % "
            f"{mean(waited) / 60:8.0f} m {waited[int(0.99 * len(waited))] / 60:5.0f} {waited[-1] / 60:8.0f} "
            f"{filled.preempted + shared.preempted:10}",
            flush=True,
        )


if __name__ == "__main__":
    main()
