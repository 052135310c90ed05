"""Measure the progress of elastic gangs, and predict from it what more slots would save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kernel_backend.model.times import AttemptTimes, Split, added
from kernel_backend.model.trial import Attempt, Trial

LEAST_STEPS = 10  # of an attempt that is measured
# The time that a gang must have trained with another number of slots to count as measured. In a shorter time its steps
# may have been slow by chance, and as it would not get that many slots again, the error would last.
LEAST_S = 30.0
MOST_WAIT_S = 60.0  # counted of each wait in a site's queue: gangs grow when slots are free, not when it is full


class Progress(NamedTuple):
    """Measured progress of an elastic gang; times are in seconds."""

    left: float  # until its end with the slots that it has
    elapsed: float  # since its second step with them
    restart: float  # that its start took, until that step, with its wait in a site's queue
    step_times: tuple[tuple[int, float], ...]  # per step, by number of slots with which it has trained, ascending


def measured_progress(
    trial: Trial, attempts: Sequence[Attempt], times: Sequence[AttemptTimes], at: float
) -> Progress | None:
    """Return the progress of a trial's newest attempt, measured at time `at` (in seconds since the epoch).

    None if it has trained too few steps. `attempts` are those of the trial, oldest first, and `times` what their ranks
    have measured. A training of unknown length is assumed to take as long again as it has trained. Other numbers of
    slots than the present one count only after `LEAST_S` of training with them.
    """
    first = {each.attempt: each.times.whole for each in times if each.times.rank == 0}
    sizes: defaultdict[int, list[Split]] = defaultdict(list)
    for attempt in attempts:
        split = first.get(attempt.number, Split())
        if split.steps >= LEAST_STEPS and split.seconds:
            sizes[attempt.slots].append(split)
    newest = attempts[-1]
    now = first.get(newest.number, Split())
    if now.steps < LEAST_STEPS or not now.seconds:
        return None
    begun = newest.created_at if newest.granted_at is None else newest.granted_at
    if trial.total_steps is None:
        left = sum(split.seconds for split in first.values())
    else:
        left = max(0, trial.total_steps - trial.step) * now.seconds / now.steps
    step_times = (
        (size, _step_time(splits))
        for size, splits in sorted(sizes.items())
        if size == newest.slots or added(splits).seconds >= LEAST_S
    )
    restart = max(0.0, at - begun - now.seconds) + _queued(attempts)
    return Progress(left, now.seconds, restart, tuple(step_times))


def _queued(attempts: Sequence[Attempt]) -> float:
    """Return the seconds that the newest attempt has waited in an external queue, such as Slurm's, for its slots.

    The waits of attempts directly before it that never got slots are added. Of each wait at most `MOST_WAIT_S` counts.
    """
    whole, own = 0.0, True
    for each in reversed(attempts):
        until = each.ended_at if each.granted_at is None else each.granted_at
        if not own and each.granted_at is not None:
            break
        whole += min(MOST_WAIT_S, max(0.0, (until or each.created_at) - each.created_at))
        own = False
    return whole


def _step_time(splits: Sequence[Split]) -> float:
    whole = added(splits)
    return whole.seconds / whole.steps


def saved(progress: Progress, slots: int, more: int) -> float:
    """Return how many seconds earlier a gang is expected to end with `more` slots than with `slots`.

    If the gang has trained with `more` slots, the measured time of a step is used. Otherwise that time is predicted: it
    has a constant part and a part that is divided among the slots, both estimated from two numbers of slots. If only
    one number of slots has been measured, all of the time is assumed to be divided. 0 if the time with `slots` is
    unknown.

    Examples
    --------
    >>> saved(Progress(left=600.0, elapsed=60.0, restart=8.0, step_times=((2, 0.4),)), 2, 4)
    300.0
    >>> saved(Progress(left=600.0, elapsed=60.0, restart=8.0, step_times=((1, 0.4), (2, 0.4))), 2, 4)
    0.0
    """
    times = dict(progress.step_times)
    now = times.get(slots)
    if not now:
        return 0.0
    then = times[more] if more in times else _predicted(times, slots, more)
    return progress.left * (1.0 - then / now)


def _predicted(times: Mapping[int, float], slots: int, more: int) -> float:
    now = times[slots]
    shared = now * slots
    other = max((size for size in times if size != slots), default=None)
    if other is not None:
        shared = min(max(0.0, (times[other] - now) / (1 / other - 1 / slots)), shared)
    return now - shared * (1 / slots - 1 / more)
