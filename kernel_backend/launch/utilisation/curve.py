"""Merge the samples of a rank's slot use into periods, which get longer with time so that their number stays small."""

from __future__ import annotations

from math import ceil, log2

from kernel_backend.model.launch.utilisation import SlotUse, merged

SHORTEST_S = 10.0
DOUBLED_S = 1200.0  # after this time periods are twice as long, after twice this time four times, and so on


def period_s(elapsed: float) -> float:
    """Return the length in seconds of a period that begins `elapsed` seconds after the first sample.

    Examples
    --------
    >>> [period_s(hours * 3600.0) for hours in (0, 1, 24)]
    [10.0, 40.0, 1280.0]
    """
    doublings = ceil(log2(elapsed / DOUBLED_S)) if elapsed > DOUBLED_S else 0
    return SHORTEST_S * float(2**doublings)


class Curve:
    """Samples of one rank's slot use, merged into periods.

    There are 120 periods in the first 20 minutes, and 60 more whenever the elapsed time has doubled.
    """

    def __init__(self) -> None:
        self._elapsed, self._number = 0.0, 0
        self._open: list[SlotUse] = []

    def add(self, sample: SlotUse) -> tuple[int, SlotUse] | None:
        """Add a sample; if it completes a period, return the period's number (from 1) and the use in it, else None."""
        self._open.append(sample)
        return self.end() if sum(each.seconds for each in self._open) >= period_s(self._elapsed) else None

    def end(self) -> tuple[int, SlotUse] | None:
        """End the current period; return its number and the use in it, or None if it has no samples."""
        if not self._open:
            return None
        whole = merged(self._open)
        self._open = []
        self._elapsed += whole.seconds
        self._number += 1
        return self._number, whole
