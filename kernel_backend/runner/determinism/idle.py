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
    """Set of the global generators, of Python and numpy, from which a dataset has not drawn so far.

    They need not be seeded before each sample. torch's generator is not among them: seeding it takes a fifth of the
    time that the other two take.
    """

    def __init__(self) -> None:
        self.names = frozenset(_DRAWS)
        self._expected: dict[str, float] = {}

    def expect(self) -> None:
        """Remember the first number that each idle generator draws, just after it was seeded.

        The caller then gives all generators the same seeds once more, so that the dataset finds them as if nothing was
        drawn.
        """
        self._expected = {name: _DRAWS[name]() for name in self.names}

    def drawn(self) -> bool:
        """Return True if the dataset has drawn from an idle generator since `expect`.

        Then the generator's next number is not the remembered one, and the generator does not count as idle any more.
        """
        drawn = {name for name in self.names if _DRAWS[name]() != self._expected[name]}
        self.names -= drawn
        return bool(drawn)
