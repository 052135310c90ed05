"""Compute the sample order of an epoch: a random-access permutation that follows from seed and epoch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernel_backend.runner.determinism import seeds

LARGEST_LISTED = 10**7  # up to this size a permutation is held in memory: 80 MB, drawn in half a second
_ROUNDS = 6
_ODD = -0x61C8864680B583EB


class Permutation:
    """Random order of the `count` samples of an epoch, which follows from the seed and the epoch."""

    def __init__(self, seed: int, epoch: int, count: int) -> None:
        value = seeds.mix(seed, "order", epoch)
        self._scattered = LazyPermutation(value, count) if count > LARGEST_LISTED else None
        listed = count if self._scattered is None else 0
        self._listed = torch.randperm(listed, generator=seeds.generator(value))

    def slice(self, start: int, stop: int) -> Tensor:
        """Return the indices of the samples at places `start` to `stop` (exclusive) of the random order, as int64."""
        if self._scattered is None:
            return self._listed[start:stop]
        return self._scattered.at(torch.arange(start, stop))


class LazyPermutation:
    """Permutation of `count` numbers, computed on demand instead of stored as a list.

    A place in the order is a row and a column of a nearly square table. In turn, each of the two is shifted by a hash
    of the other. This can be inverted: it is a Feistel network (Luby and Rackoff 1988). The table may have a few more
    places than `count`. A result that is not below `count` is permuted again, until it is (Black and Rogaway 2002:
    Ciphers with arbitrary finite domains).
    """

    def __init__(self, value: int, count: int) -> None:
        self._count = count
        self._columns = math.isqrt(count - 1) + 1
        self._rows = -(-count // self._columns)
        self._keys = [(seeds.mix(value, "factor", each) | 1, seeds.mix(value, "term", each)) for each in range(_ROUNDS)]

    def at(self, places: Tensor) -> Tensor:
        """Return the numbers that the permutation has at these places (0 to `count` - 1), as int64."""
        found = self._once(places)
        while (outside := found >= self._count).any():
            found[outside] = self._once(found[outside])
        return found

    def _once(self, places: Tensor) -> Tensor:
        row, column = places // self._columns, places % self._columns
        for number, key in enumerate(self._keys):
            if number % 2:
                column.add_(_hash(row, key)).remainder_(self._columns)
            else:
                row.add_(_hash(column, key)).remainder_(self._rows)
        return row.mul_(self._columns).add_(column)


def _hash(numbers: Tensor, key: tuple[int, int]) -> Tensor:
    """Return a hash of each number, for one round of the permutation with the two constants in `key`.

    Products wrap around at 64 bits. The xor in the middle prevents the composition of all rounds from being linear.
    """
    mixed = numbers.mul(key[0]).add_(key[1])
    mixed.bitwise_xor_(mixed >> 32)
    return mixed.mul_(_ODD).bitwise_right_shift_(24)
