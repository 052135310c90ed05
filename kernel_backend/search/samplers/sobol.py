"""Fill the unit cube evenly with a scrambled Sobol sequence.

The scrambling is a random linear one with a shift (J. Matousek, "On the L2-discrepancy for anchored boxes", J.
Complexity 14 (1998), 527-556), which preserves the evenness. Coordinates without direction numbers are random: a
padded sequence (J. Spanier, 1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from kernel_backend.search.samplers.joe_kuo import DIRECTIONS

BITS = 32  # bits per coordinate, so that there are 2**32 different points
DIMENSIONS = len(DIRECTIONS) + 1


class Sobol:
    """Sobol sequence of one seed in `dimensions` dimensions.

    Points depend only on the seed and their index.
    """

    def __init__(self, dimensions: int, seed: int) -> None:
        self._seed = seed
        self._padding = max(0, dimensions - DIMENSIONS)
        random = Random(f"sobol {seed}")
        self._directions: list[list[int]] = []
        self._shifts: list[int] = []
        for dimension in range(dimensions - self._padding):
            self._directions.append(_scrambled(_directions(dimension), random))
            self._shifts.append(random.getrandbits(BITS))

    def point(self, index: int) -> list[float]:
        """Return point number `index`, from 0; coordinates lie in (0, 1)."""
        gray = index ^ index >> 1
        ones = [bit for bit in range(gray.bit_length()) if gray >> bit & 1]
        found = []
        for directions, number in zip(self._directions, self._shifts, strict=True):
            for bit in ones:
                number ^= directions[bit]
            found.append((number + 0.5) / 2**BITS)
        return found + list(self._padded(index))

    def _padded(self, index: int) -> Iterator[float]:
        random = Random(f"sobol {self._seed} {index}") if self._padding else Random(0)
        return (random.random() for _ in range(self._padding))


def _directions(dimension: int) -> list[int]:
    """Return the direction numbers of the Sobol sequence in a dimension, as multiples of 2**-BITS."""
    if dimension == 0:
        return [1 << BITS - 1 - bit for bit in range(BITS)]
    degree, inner, first = DIRECTIONS[dimension - 1]
    found = [number << BITS - 1 - bit for bit, number in enumerate(first)]
    for bit in range(degree, BITS):
        number = found[bit - degree] ^ found[bit - degree] >> degree
        for step in range(1, degree):
            if inner >> degree - 1 - step & 1:
                number ^= found[bit - step]
        found.append(number)
    return found


def _scrambled(directions: list[int], random: Random) -> list[int]:
    """Return the direction numbers, each multiplied by one random lower triangular matrix over GF(2).

    Row 0 of the matrix is the highest bit.
    """
    # Row r has a 1 at the bit that it determines, and random bits above it.
    rows = [(random.getrandbits(row) << 1 | 1) << BITS - 1 - row for row in range(BITS)]
    return [
        sum(((row & number).bit_count() & 1) << BITS - 1 - place for place, row in enumerate(rows))
        for number in directions
    ]
