"""Choose an allocation for a gang from those kept for its search, and the length of a new one: pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernel_backend.model.cluster.allocations import HeldAllocation

EARLY_S = 60.0  # an engine may ask a gang to exit up to this much earlier, as Slurm does for `--signal=SIG@TIME`


class Demand(NamedTuple):
    """Requirements of a gang on its allocation; gangs whose demands are equal can use the same allocation in turn."""

    experiment: int
    python: str
    options: tuple[str, ...]  # in the terms of the engine: nodes, slots, partition and the like, as options of sbatch


def margin(seconds: float) -> float:
    """Return how many seconds before the end of an allocation its gang must be signalled to exit.

    `seconds` is the full length of the allocation. In the margin the gang commits a checkpoint; its trial then
    continues in another allocation.

    Examples
    --------
    >>> margin(4 * 3600), margin(600)
    (300.0, 30.0)
    """
    return min(300.0, max(30.0, seconds / 20))


def length(wanted: float, limit: float | None) -> float:
    """Return how many seconds to request for an allocation: `wanted`, but at most the engine's time limit, if any."""
    return wanted if limit is None else min(wanted, limit)


def choose(demand: Demand, held: Iterable[tuple[Demand, float, HeldAllocation]], now: float) -> HeldAllocation | None:
    """Return the free allocation in which a gang with this demand should run; None if a new one must be requested.

    `held` has the demand, the length in seconds, and the state of each allocation. Running allocations are preferred to
    pending ones, and among running ones the one with the most time left. Allocations that end too soon are left out,
    since the gang would have to exit at once.
    """
    free = [
        each
        for theirs, seconds, each in held
        if theirs == demand and each.job and not each.gang and not each.closing and lasts(each, seconds, now)
    ]
    return max(free, key=lambda each: (each.running, each.ends or 0.0), default=None)


def lasts(each: HeldAllocation, seconds: float, now: float) -> bool:
    """Return whether an allocation has enough time left at time `now` to start another gang in it.

    `seconds` is its full length, on which the required time depends (see `margin`).
    """
    return each.ends is None or each.ends - now > 2 * margin(seconds) + EARLY_S
