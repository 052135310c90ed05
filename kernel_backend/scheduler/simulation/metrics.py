"""Measure simulated schedules: fairness in time windows, utilisation relative to an upper bound, and waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kernel_backend.scheduler.simulation.simulate import SimulationResult
from kernel_backend.scheduler.simulation.workloads import Workload


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all values are equal, 1/n if one of n has everything; 1 without values."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def held(played: SimulationResult, begun: float, ended: float) -> dict[str, float]:
    """Return the slot-seconds that each owner's jobs held between the times `begun` and `ended` of a simulation.

    `played` is the result of the simulation.
    """
    found = dict.fromkeys(sorted({job.owner for job in played.jobs.values()}), 0.0)
    for interval in played.intervals:
        job = played.jobs[interval.job]
        found[job.owner] += interval.slots * max(0.0, min(ended, interval.ended) - max(begun, interval.begun))
    return found


def fairness(played: SimulationResult, window: float, weights: Mapping[str, float], begun: float = 0.0) -> list[float]:
    """Return Jain's index of the users' weighted slot-seconds in a simulation, for each window of time from `begun` on.

    A window has `window` seconds; `weights` has the weight of each user. The index is meaningful for users who always
    want more than their share.
    """
    count = int((played.until - begun) // window)
    windows = pairwise(begun + nth * window for nth in range(count + 1))
    amounts = (held(played, *each) for each in windows)
    return [jain([amount[owner] / weight for owner, weight in sorted(weights.items())]) for amount in amounts]


def bound(jobs: Iterable[Workload], slots: int, until: float) -> float:
    """Return an upper bound of the slot-seconds of work that any schedule can do by `until`.

    The bound is the minimum, over all times t, of the work that arrived by t plus what all slots can do from t on.
    """
    least = slots * until
    arrived = 0.0
    for job in sorted(jobs, key=lambda job: job.arrival):
        if job.arrival >= until:
            break
        least = min(least, arrived + slots * (until - job.arrival))
        arrived += job.slots * min(job.duration, until - job.arrival)
    return min(least, arrived)


def utilisation(played: SimulationResult) -> float:
    """Return the useful work of a simulated schedule as a fraction of what any schedule could do (see `bound`)."""
    done = sum(played.jobs[interval.job].slots * interval.useful for interval in played.intervals)
    most = bound(played.jobs.values(), played.slots, played.until)
    return done / most if most else 1.0


def waits(played: SimulationResult) -> list[float]:
    """Return the seconds from each job's arrival to its first start, shortest first.

    A job that never started counts with its wait until the end of the simulation.
    """
    came = (job for job in played.jobs.values() if job.arrival < played.until)
    return sorted(played.waits.get(job.number, played.until - job.arrival) for job in came)
