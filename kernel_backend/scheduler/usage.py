"""Measure slot usage over time, such that reading a result takes the same time however many intervals were added."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import exp, expm1, log


class Meter:
    """Meter of the slots that an account holds over time; its results are in slot-seconds.

    It must be updated in order of time.
    """

    def __init__(self, half_life: float, window: float = 0.0) -> None:
        """Create a meter; `half_life`, in seconds, is that of decayed usage.

        `window` is the number of seconds back that `within` can look. It can be increased later.
        """
        self._rate = log(2) / half_life
        self.window = window
        self._at = 0.0
        self._decayed = 0.0
        self.held = 0
        self.waiting = 0  # slots of gangs in their engines' own queues: limited, but not used yet
        # Corners of the piecewise linear curve of slot-seconds over time, from the last one before the window.
        self._times: list[float] = [0.0]
        self._totals: list[float] = [0.0]

    def hold(self, slots: int, at: float) -> None:
        """Add slots that are held from time `at` on; a negative number removes slots.

        If `at` is before the time of the last call, the time of that call is used.
        """
        at = max(at, self._at)
        total = self._totals[-1] + self.held * (at - self._times[-1])
        self._decayed = self.decayed(at)
        self._at = at
        self.held += slots
        if not self.window:
            self._times, self._totals = [at], [total]
            return
        self._times.append(at)
        self._totals.append(total)
        old = bisect_right(self._times, at - self.window) - 1
        if old > len(self._times) // 2:  # rare, so that the amortised cost is small
            del self._times[:old], self._totals[:old]

    def decayed(self, at: float) -> float:
        """Return the decayed usage at time `at`: usage one half-life earlier counts half.

        While h slots are held, usage u follows u' = h - u ln 2 / half-life.
        """
        passed = self._rate * max(0.0, at - self._at)
        return self._decayed * exp(-passed) - self.held / self._rate * expm1(-passed)

    def within(self, window: float, at: float) -> float:
        """Return the slot-seconds in the `window` seconds before `at`."""
        return self._total(at) - self._total(at - window)

    def _total(self, at: float) -> float:
        """Return the slot-seconds from the start of the meter until `at`."""
        nth = bisect_right(self._times, at) - 1
        if nth < 0:
            return self._totals[0]
        if nth + 1 == len(self._times):
            return self._totals[nth] + self.held * (at - self._times[nth])
        part = (at - self._times[nth]) / (self._times[nth + 1] - self._times[nth])
        return self._totals[nth] + part * (self._totals[nth + 1] - self._totals[nth])

    def replay(self, intervals: Iterable[tuple[float, float | None, int]]) -> None:
        """Add past intervals to a meter that has none yet.

        Each is (start, end or None, number of slots); they may be in any order.
        """
        corners: list[tuple[float, int]] = []
        for begun, ended, slots in intervals:
            corners.append((begun, slots))
            if ended is not None:
                corners.append((ended, -slots))
        for at, slots in sorted(corners):
            self.hold(slots, at)


def averages(intervals: Iterable[tuple[float, float | None, int]], at: Sequence[float], now: float) -> list[float]:
    """Return the average number of slots held between successive times in `at`; slots are not counted after `now`.

    `intervals` has (start, end or None, number of slots).
    """
    corners: list[tuple[float, int]] = []
    for begun, ended, slots in intervals:
        until = now if ended is None else ended
        if begun < until:
            corners += ((begun, slots), (until, -slots))
    corners.sort()
    totals: list[float] = []  # slot-seconds until each of the times
    held, total, last, nth = 0, 0.0, at[0], 0
    for time in at:
        while nth < len(corners) and corners[nth][0] <= time:
            when, slots = corners[nth]
            total += held * (when - last)
            held, last, nth = held + slots, when, nth + 1
        totals.append(total + held * (time - last))
    steps = zip(totals, totals[1:], at, at[1:], strict=False)
    return [(after - before) / (end - begin) for before, after, begin, end in steps]
