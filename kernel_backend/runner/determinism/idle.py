"""Find out which global random generators a dataset does not draw from, so that these need no seed for each sample."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

_DRAWS: Mapping[str, Callable[[], float]] = {"python": random.random} | (
    {} if np is None else {"numpy": np.random.random_sample}
)


class IdleGenerators:
    """Those of Python's and numpy's global generators that nothing but `expect` and `drawn` has drawn from so far.

    torch's is not among them: it is seeded in a fifth of the time that the other two take.
    """

    def __init__(self) -> None:
        self.names = frozenset(_DRAWS)
        self._expected: dict[str, float] = {}

    def expect(self) -> None:
        """Draw the first number of each idle generator after a seed; seed them alike before anything else draws."""
        self._expected = {name: _DRAWS[name]() for name in self.names}

    def drawn(self) -> bool:
        """Return True if a generator does not draw the expected number, as it has been drawn from since its seed.

        Such generators are not idle any more.
        """
        drawn = {name for name in self.names if _DRAWS[name]() != self._expected[name]}
        self.names -= drawn
        return bool(drawn)
