"""What a new trial's hyperparameters are: anywhere, or on a list. A draw comes from (seed, number of the ask) alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from kernel_backend.model.record import Value
from kernel_backend.search.observations import Observations
from kernel_backend.search.samplers.sobol import Sobol


class Sampler(Protocol):
    """Where to look next. It remembers nothing: what there is to know is in the observations."""

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """The hyperparameters of ask `number`, counted from 1."""


class RandomSampler:
    """Anywhere, each point of the unit cube being as likely."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """A point that is drawn from (seed, number)."""
        random = stream(self._seed, number)
        return seen.encoder.decode([random.random() for _ in seen.encoder.dimensions])


class SobolSampler:
    """Evenly everywhere: fewer holes and clusters than random points have."""

    def __init__(self, dimensions: int, seed: int) -> None:
        self._sobol = Sobol(dimensions, seed)

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """The point of this number."""
        return seen.encoder.decode(self._sobol.point(number - 1))


class ListSampler:
    """One after the other: a grid."""

    def __init__(self, points: Sequence[dict[str, Value]]) -> None:
        self._points = points

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """The point of this number; raises IndexError beyond the last."""
        return dict(self._points[number - 1])


def stream(seed: int, number: int) -> Random:
    """The random numbers of one ask, as though no other ask had any."""
    return Random(f"{seed} {number}")  # of a text it takes the SHA-512: seeds that are near give streams that are not
