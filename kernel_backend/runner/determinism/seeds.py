"""Derive random numbers from the experiment's seed and the step or sample, instead of storing generator states.

Before each step, sample and function of the definition, the generators of Python, numpy and torch are reseeded from
(seed, kind, number of the step or sample). So a resumed training draws the same numbers as an uninterrupted one.

The generators of numpy (seeded by a number) and of torch on the CPU are the same Mersenne Twister, with 32-bit seeds.
Equal seeds would make them draw the same numbers, and of a million random seeds a hundred would be equal. So numpy's
seeds have the highest bit set and torch's do not, and seeds of samples come from a permutation: all are distinct.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Set

import torch

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

_MASK = 2**64 - 1
_MASK31 = 2**31 - 1
_NUMPYS = 2**31


def mix(seed: int, *parts: int | str) -> int:
    """Return a number below 2**63 derived from the seed and the parts; different parts give unrelated numbers.

    A chain of splitmix64 (Steele, Lea and Flood 2014: Fast splittable pseudorandom number generators).
    """
    return _chain(seed, *parts) >> 1


def reseed(value: int) -> None:
    """Seed Python's, numpy's and torch's global random generators, in about 10 microseconds."""
    random.seed(value)
    _seed_numpy(value >> 32)
    # torch.manual_seed does more than needed, and takes a hundred times as long.
    torch.default_generator.manual_seed(value & _MASK31)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(value)


class Draws:
    """Random seeds for the elements of a sequence, such as the samples of a training, by position in it.

    No two of the first 2**31 positions share a seed, in any of the three generators (of Python, numpy and torch).
    """

    def __init__(self, seed: int, tag: str) -> None:
        self._start = _chain(seed, tag)
        self._numpy, self._torch = mix(seed, tag, "numpy"), mix(seed, tag, "torch")

    def at(self, position: int, idle: Set[str] = frozenset()) -> None:
        """Seed the global random generators for the element at `position`, in about 10 microseconds.

        Generators named in `idle` (`python` and `numpy`) are not seeded; seeding these takes most of that time.
        """
        torch.default_generator.manual_seed(_scatter(position, self._torch))
        if "numpy" not in idle:
            _seed_numpy(_scatter(position, self._numpy))
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if on_gpu or "python" not in idle:
            value = _splitmix64(self._start ^ position) >> 1
            if "python" not in idle:
                random.seed(value)
            if on_gpu:
                torch.cuda.manual_seed(value)


class Numbers:
    """Seeds for the elements of a sequence, by position; the first 2**31 differ pairwise in their last 31 bits."""

    def __init__(self, seed: int, *parts: int | str) -> None:
        self._start, self._last = _chain(seed, *parts), mix(seed, *parts, "last bits")

    def at(self, position: int) -> int:
        """Return the seed for the element at `position` of the sequence, below 2**63."""
        return _splitmix64(self._start ^ position) >> 33 << 32 | _scatter(position, self._last)


def for_numpy(value: int) -> int:
    """Return a 32-bit seed for numpy's legacy generator, computed from `value`; no seed for torch ever equals it."""
    return value & _MASK31 | _NUMPYS


def first_draws() -> tuple[float, ...]:
    """Draw one number from each global generator of Python, numpy and torch (CPU), to compare the generators' states.

    Equal results mean equal states.
    """
    of_numpy = (float(np.random.random_sample()),) if np is not None else ()
    return (random.random(), float(torch.rand((), dtype=torch.float64)), *of_numpy)


def generator(value: int) -> torch.Generator:
    """Return a new torch generator with this seed, so that the global one stays as it is."""
    return torch.Generator().manual_seed(value)


def _seed_numpy(value: int) -> None:
    if np is not None:
        np.random.seed(value | _NUMPYS)


def _chain(seed: int, *parts: int | str) -> int:
    state = _splitmix64(seed & _MASK)
    for part in parts:
        state = _splitmix64(state ^ (_number(part) if isinstance(part, str) else part & _MASK))
    return state


def _splitmix64(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _scatter(position: int, key: int) -> int:
    """Return a number below 2**31 for a position, such that 2**31 consecutive positions have distinct numbers.

    All its operations are invertible. `key` selects the order of the numbers.
    """
    x = (position + key + (position >> 31) * (key >> 31)) & _MASK31
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & _MASK31
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & _MASK31
    return x ^ (x >> 16)


@functools.cache
def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
