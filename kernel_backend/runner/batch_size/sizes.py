"""Search for the largest size that fits, by doubling and bisection."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

FIRST = 2  # BatchNorm cannot train on a single sample
PARTS = 8  # the result is exact to this fraction of the largest power of two that fits: 64, 72, 80, ..., 128


class Found(NamedTuple):
    """Result of a search: the largest size known to fit into memory (0 if none), and the smallest known not to fit."""

    size: int
    misfit: int | None  # None: even the largest size fits


def largest(fits: Callable[[int], bool], most: int) -> Found:
    """Find the largest size from 1 to `most` for which `fits` returns True, to within an eighth.

    Sizes are doubled until one does not fit, so that memory is never exceeded by much. Then the gap to the largest one
    that fits is bisected, until it is an eighth of that (64 / 8 in the example). No size is tried twice, and about
    three sizes are tried after the first that does not fit.

    Examples
    --------
    >>> largest(lambda size: size <= 100, most=1000)
    Found(size=96, misfit=104)
    """
    low, high = 0, None
    while high is None and low < most:
        size = min(most, max(FIRST, 2 * low))
        if fits(size):
            low = size
        else:
            high = size
    step = max(1, low // PARTS)
    while high is not None and high - low > step:
        steps = -(-(high - low) // step)
        middle = low + steps // 2 * step
        if fits(middle):
            low = middle
        else:
            high = middle
    return Found(low, high)
