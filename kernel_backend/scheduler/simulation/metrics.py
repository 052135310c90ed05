"""How well a cluster was shared: fairness over windows, use beside what nobody could have exceeded, waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kernel_backend.scheduler.simulation.simulate import SimulationResult
from kernel_backend.scheduler.simulation.workloads import Workload


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one of n has everything; 1 of nothing."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def held(played: SimulationResult, begun: float, ended: float) -> dict[str, float]:
    """Slot-seconds that each owner held between two times."""
    found = dict.fromkeys(sorted({job.owner for job in played.jobs.values()}), 0.0)
    for spell in played.spells:
        job = played.jobs[spell.job]
        found[job.owner] += job.slots * max(0.0, min(ended, spell.ended) - max(begun, spell.begun))
    return found


def fairness(played: SimulationResult, window: float, weights: Mapping[str, float], begun: float = 0.0) -> list[float]:
    """Jain's index of what each of `weights` held by its weight, in every whole window from `begun` on.

    Meant for users who always want more than their part: of others it says how much they wanted.
    """
    count = int((played.until - begun) // window)
    windows = pairwise(begun + nth * window for nth in range(count + 1))
    amounts = (held(played, *each) for each in windows)
    return [jain([amount[owner] / weight for owner, weight in sorted(weights.items())]) for amount in amounts]


def bound(jobs: Iterable[Workload], slots: int, until: float) -> float:
    """Slot-seconds of work that no schedule can exceed by `until`, whatever it knew of the future.

    Up to any time t no more is done than what has come by then, and from t on no more than all slots do.
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
    """The work that was done and kept, of the bound."""
    done = sum(played.jobs[spell.job].slots * spell.useful for spell in played.spells)
    most = bound(played.jobs.values(), played.slots, played.until)
    return done / most if most else 1.0


def waits(played: SimulationResult) -> list[float]:
    """Seconds until each job first started, shortest first; of who never did, as long as he has waited by the end."""
    came = (job for job in played.jobs.values() if job.arrival < played.until)
    return sorted(played.waits.get(job.number, played.until - job.arrival) for job in came)
