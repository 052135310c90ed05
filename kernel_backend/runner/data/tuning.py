"""Choose, by measured times, how many loader processes load how many batches ahead, so that steps rarely wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kernel_backend.model.facts import LoaderSetting
from kernel_backend.model.views.slowness import MOST_WORKERS, percent

ENOUGH = 0.08  # fraction of the time waiting for data that is left alone
GAIN = 0.05  # fraction by which a step must become shorter for a change to be kept
SPARE = 1.25  # processes beyond those that are needed on average, as batches take unequally long
FIRST, FACTOR = 4, 2  # most processes at the first change; afterwards so many times as many
MOST_AHEAD = 8  # batches that each process loads in advance
LEAST_CPU = 0.05  # of a loader's time; less needs no cores of its own


class Measured(NamedTuple):
    """Measurement of one loader setting: mean seconds of a step, of waiting for data in it, and of loading a batch."""

    setting: LoaderSetting
    step: float  # without validations and checkpoints
    waited: float  # of it for data
    load: float  # to load a batch, in one process
    cpu: float  # of these, time of the CPU

    @property
    def waiting(self) -> float:
        """Return the fraction of a step's time that is spent waiting for data."""
        return self.waited / self.step if self.step else 0.0


class Limits(NamedTuple):
    """Limits for the loader processes of this rank: CPU cores and memory."""

    cores: int  # of its slot
    processes: int  # further ones that fit into the memory


class Choice(NamedTuple):
    """Loader setting to use next; if `settled`, the tuning ends with it.

    `reason` then says why steps still wait for data, "" if they rarely do.
    """

    setting: LoaderSetting
    settled: bool
    reason: str = ""


def choose(tried: Sequence[Measured], limits: Limits) -> Choice:
    """Return the loader setting to use next, given the measurements of all settings tried so far (the newest last)."""
    now, best = tried[-1], _best(tried)
    if best.setting != now.setting:
        return Choice(best.setting, True, "another setting is not faster")
    if now.waiting <= ENOUGH:
        return Choice(now.setting, True)
    setting, reason = _more(now, limits)
    return Choice(setting, setting == now.setting, reason)


def told(tried: Sequence[Measured], choice: Choice) -> str:
    """Return the note to the user about the final choice, such as `tuned: 4 loader workers (waiting 62 % -> 6 %)`."""
    first = tried[0]
    last = next(each for each in reversed(tried) if each.setting == choice.setting)
    if choice.setting == first.setting:
        text = f"{_workers(choice.setting)} as before (waiting {percent(first.waiting)})"
    else:
        waiting = f"waiting {percent(first.waiting)} -> {percent(last.waiting)}"
        shorter = f"steps {percent(1 - last.step / first.step)} shorter"
        text = f"{_workers(choice.setting)} ({waiting if last.waiting < first.waiting else shorter})"
    reason = f"; {choice.reason}" if choice.reason and last.waiting > ENOUGH else ""
    return f"tuned: {text}{reason}"


def _workers(setting: LoaderSetting) -> str:
    text = f"{setting.workers} loader worker{'' if setting.workers == 1 else 's'}"
    return text if setting.prefetch <= 2 or not setting.workers else f"{text}, {setting.prefetch} batches ahead of each"


def _best(tried: Sequence[Measured]) -> Measured:
    """Return the measurement of the setting with the shortest steps; of nearly equal ones, the first tried."""
    shortest = min(each.step for each in tried)
    return next(each for each in tried if each.step * (1 - GAIN) <= shortest)


def _more(now: Measured, limits: Limits) -> tuple[LoaderSetting, str]:
    """Return a setting that loads more batches at once, and what limits it; the present setting if there is none."""
    workers, prefetch = now.setting.workers, now.setting.prefetch
    work = now.step - now.waited
    needed = MOST_WORKERS if work * MOST_WORKERS <= SPARE * now.load else math.ceil(SPARE * now.load / work)
    if workers and needed <= workers:  # enough on average: only a longer queue bridges the slow batches
        deeper = min(MOST_AHEAD, FACTOR * prefetch)
        return LoaderSetting(workers=workers, prefetch=deeper), "some batches take much longer than the others"
    most, reason = _most(now, limits)
    wanted = max(workers, min(needed, most, max(FIRST, FACTOR * workers)))
    return LoaderSetting(workers=wanted, prefetch=prefetch), reason


def _most(now: Measured, limits: Limits) -> tuple[int, str]:
    """Return the largest number of loader processes that cores and memory allow, and a text on what limits it."""
    share = min(1.0, now.cpu / now.load) if now.load else 0.0
    # The training uses a core itself while it does not wait.
    free = limits.cores - (1 - now.waiting)
    by_cores = max(1, round(free / share)) if share >= LEAST_CPU else MOST_WORKERS
    cores = "core" if limits.cores == 1 else f"{limits.cores} cores"
    return min(
        (by_cores, f"the {cores} of its slot allow{'s' if limits.cores == 1 else ''} no more"),
        (now.setting.workers + limits.processes, "the memory allows no more"),
        (MOST_WORKERS, "more processes are not started"),
        key=lambda each: each[0],
    )
