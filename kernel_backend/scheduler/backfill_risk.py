"""Estimate from past run lengths how likely it is that a gang delays a reservation whose slots it uses (backfill)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from kernel_backend.scheduler.requests import Allocation
from kernel_backend.scheduler.run_lengths import PastLengths

STEPS = (0.0, *(60.0 * 1.5**nth for nth in range(24)))  # times ahead that are considered, up to a week

MOST_WAITING = 256  # gangs that a forecast considers; with more, the reservation counts as due at once

_MOST_EXACT = 4096  # above this many updates the distribution is not computed exactly; it takes some milliseconds
_RUN_OVERHEAD = 20  # cost per gang besides one update per slot, in updates: 2 to 3 us against 0.1 us each

Due = list[tuple[float, float]]  # (seconds, probability that the reservation is due between then and the next step)


def due(missing: int, held: Sequence[tuple[int, Allocation]], since: float, lengths: PastLengths, at: float) -> Due:
    """Return the times at which a reservation that lacks `missing` slots may start, each with its probability.

    `held` has the running gangs on the reserved nodes, each with the number of slots that it holds there. Three kinds
    of gangs are assumed to end at any time: those of unknown length, those that were requested to exit, and those that
    started after the reservation was made (at time `since`). The times are therefore early rather than late, so that
    gangs which use reserved slots meanwhile do not postpone the reservation.
    """
    waiting = [(slots, run) for slots, run in held if not _may_end_now(run, since)]
    missing -= sum(slots for slots, run in held if _may_end_now(run, since))

    if len(waiting) > MOST_WAITING:
        return [(0.0, 1.0)]

    def enough(seconds: float) -> float:
        return chance_of_enough(missing, [(slots, ends(run, seconds)) for slots, run in waiting])

    def ends(run: Allocation, seconds: float) -> float:
        if run.ends is not None and run.ends <= at + seconds:
            return 1.0
        return lengths.chance_to_end(run.owner, run.slots, at - run.since, seconds)

    found: Due = []
    before = 0.0
    for begun, ended in pairwise(STEPS):
        chance = max(before, enough(ended))
        found.append((begun, chance - before))
        before = chance
        if before >= 1.0:
            break
    return [*found, (STEPS[-1], 1.0 - before)]


def chance_of_enough(missing: int, released: Sequence[tuple[int, float]]) -> float:
    """Return the probability that at least `missing` slots are released.

    `released` has a pair (number of slots, probability of their release) for each gang. For few pairs the result is
    exact, computed from the distribution of the sum; for many it is an upper bound by Cantelli's inequality.
    """
    if missing <= 0:
        return 1.0
    if (missing + _RUN_OVERHEAD) * len(released) > _MOST_EXACT:
        mean = sum(slots * p for slots, p in released)
        variance = sum(slots * slots * p * (1.0 - p) for slots, p in released)
        still = missing - mean
        return variance / (variance + still * still) if still > 0 else 1.0
    fewer, enough = [1.0] + [0.0] * (missing - 1), 0.0  # probability of each total below `missing`, so far
    for slots, p in released:
        enough += p * sum(fewer[max(0, missing - slots) :])
        shifted = [0.0] * min(slots, missing) + fewer[: missing - min(slots, missing)]
        fewer = [(1.0 - p) * stay + p * come for stay, come in zip(fewer, shifted, strict=True)]
    return min(1.0, enough)


def late(due: Due, chance_to_last: Callable[[float], float]) -> float:
    """Return the probability that a gang still runs when a reservation is due.

    `due` has the times at which the reservation may start, with their probabilities. `chance_to_last(seconds)` returns
    the probability that the gang still runs after so many seconds.
    """
    return sum(chance * chance_to_last(seconds) for seconds, chance in due if chance)


def risk_of(runs: Iterable[Allocation], since: float, lengths: PastLengths, at: float, due: Due) -> float:
    """Return an upper bound of the probability that any of the gangs in `runs` delays a reservation.

    `due` has the times at which the reservation may start, with their probabilities; `lengths` has past run lengths,
    from which the end of a gang is predicted. Only gangs that started after the reservation was made (at time `since`)
    count.
    """

    def lasts(run: Allocation, seconds: float) -> float:
        if run.ends is not None and run.ends <= at + seconds:
            return 0.0
        return lengths.chance_to_last(run.owner, run.slots, at - run.since, seconds)

    passed = (run for run in runs if run.since >= since and run.leaving is None and not run.passed)
    return sum(late(due, lambda seconds, run=run: lasts(run, seconds)) for run in passed)  # type: ignore[misc]


def _may_end_now(run: Allocation, since: float) -> bool:
    return run.leaving is not None or run.passed or run.since >= since or not run.key.is_gang
