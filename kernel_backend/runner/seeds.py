"""Random numbers are derived, not stored: every draw follows from the experiment's seed and where it is drawn.

Before a step, a sample or a function of the definition, the generators of python, numpy and torch are seeded anew
from (seed, what, where). A resumed training so draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import functools
import hashlib
import random

import torch

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

_MASK = 2**64 - 1


def mix(seed: int, *parts: int | str) -> int:
    """A number below 2**63 that follows from the seed and the parts, unlike that of any other parts.

    A chain of splitmix64 (Steele, Lea and Flood 2014: Fast splittable pseudorandom number generators).
    """
    state = _splitmix64(seed & _MASK)
    for part in parts:
        state = _splitmix64(state ^ (_number(part) if isinstance(part, str) else part & _MASK))
    return state >> 1


def reseed(value: int) -> None:
    """Seed the main generators of this process. About 10 us."""
    random.seed(value)
    if np is not None:
        np.random.seed(value & 0xFFFFFFFF)
    # torch.manual_seed does more than this and takes ten times as long.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(value)


def generator(value: int) -> torch.Generator:
    """A generator of its own, which leaves the main ones alone."""
    return torch.Generator().manual_seed(value)


def _splitmix64(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


@functools.cache
def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
