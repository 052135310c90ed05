"""Backfill by forecast: how likely a run makes a reservation late, from how long past runs took."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from kernel_backend.scheduler.requests import Allocation
from kernel_backend.scheduler.run_lengths import PastLengths

STEPS = (0.0, *(60.0 * 1.5**nth for nth in range(24)))  # seconds ahead that are looked at: up to a week

MOST_WAITING = 256  # runs that a forecast looks at: what waits for more is taken to be due at once

Due = list[tuple[float, float]]  # (seconds, how likely the reservation is due from then until the next step)


def due(missing: int, held: Sequence[tuple[int, Allocation]], since: float, lengths: PastLengths, at: float) -> Due:
    """Return when a reservation that waits for `missing` slots is due: rather too soon than too late.

    `held`: the slots of its region that each run holds. Runs of unknown length, those that leave, and those that
    started after the reservation (`since`) may end at any moment: no reservation is put off by those that passed it.
    Cantelli's inequality bounds how likely it is, by mean and variance, that enough slots are released by a time.
    """
    waiting = [(slots, run) for slots, run in held if not _may_end_now(run, since)]
    missing -= sum(slots for slots, run in held if _may_end_now(run, since))

    if len(waiting) > MOST_WAITING:
        return [(0.0, 1.0)]

    def enough(seconds: float) -> float:
        mean = variance = 0.0
        for slots, run in waiting:
            ended = run.ends is not None and run.ends <= at + seconds
            p = 1.0 if ended else lengths.chance_to_end(run.owner, run.slots, at - run.since, seconds)
            mean += slots * p
            variance += slots * slots * p * (1.0 - p)
        still = missing - mean
        return variance / (variance + still * still) if still > 0 else 1.0

    found: Due = []
    before = 0.0
    for begun, ended in pairwise(STEPS):
        chance = max(before, enough(ended))
        found.append((begun, chance - before))
        before = chance
        if before >= 1.0:
            break
    return [*found, (STEPS[-1], 1.0 - before)]


def late(due: Due, chance_to_last: Callable[[float], float]) -> float:
    """Return how likely a run still lasts when a reservation is due, by its chance to last for so many seconds."""
    return sum(chance * chance_to_last(seconds) for seconds, chance in due if chance)


def risk_of(runs: Iterable[Allocation], since: float, lengths: PastLengths, at: float, due: Due) -> float:
    """Return how likely any of those that started after a reservation (`since`) makes it late, at most."""

    def lasts(run: Allocation, seconds: float) -> float:
        if run.ends is not None and run.ends <= at + seconds:
            return 0.0
        return lengths.chance_to_last(run.owner, run.slots, at - run.since, seconds)

    passed = (run for run in runs if run.since >= since and run.leaving is None and not run.passed)
    return sum(late(due, lambda seconds, run=run: lasts(run, seconds)) for run in passed)  # type: ignore[misc]


def _may_end_now(run: Allocation, since: float) -> bool:
    return run.leaving is not None or run.passed or run.since >= since or bool(run.key.server)
