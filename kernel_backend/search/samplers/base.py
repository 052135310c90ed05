"""Propose hyperparameters of new trials: random points, a Sobol sequence, or a list.

Random numbers depend only on the seed and the number of the proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from kernel_backend.model.record import Value
from kernel_backend.search.observations import Observations
from kernel_backend.search.samplers.sobol import Sobol


class Sampler(Protocol):
    """Interface of a sampler, which proposes the hyperparameters of new trials.

    A sampler keeps no state of its own. It may use its seed, the number of the trial, and what was observed.

    Examples
    --------
    >>> from daylight.search import RandomSampler, Sampler
    >>> sampler: Sampler = RandomSampler(seed=0)
    """

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return the hyperparameters of a new trial.

        Parameters
        ----------
        number : int
            Number of the proposal, from 1.
        seen : Observations
            Trials and results so far, and the encoder of the space.

        Returns
        -------
        dict of str to Any
            Hyperparameters by name.
        """


class RandomSampler:
    """Sampler that proposes random points of the space, each equally likely.

    Parameters
    ----------
    seed : int
        Seed of all draws.

    Examples
    --------
    >>> from daylight.search import Parameter, RandomSampler, Range, Settings, Space, sampled
    >>> space = Space(parameters=(Parameter(name="depth", domain=Range(low=1, high=9, whole=True)),))
    >>> searcher = sampled(Settings(units=10, trials=3), space, RandomSampler(seed=0))
    >>> 1 <= searcher.on_slot().params["depth"] <= 9
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return a random point.

        Parameters
        ----------
        number : int
            Number of the proposal, from 1.
        seen : Observations
            Observations, for the encoder of the space.

        Returns
        -------
        dict of str to Any
            Hyperparameters by name.
        """
        random = stream(self._seed, number)
        return seen.encoder.decode([random.random() for _ in seen.encoder.dimensions])


class SobolSampler:
    """Sampler that proposes the points of a Sobol sequence, which are spread more evenly than random ones.

    Parameters
    ----------
    dimensions : int
        Number of coordinates of the space.
    seed : int
        Seed of the scrambling.

    Examples
    --------
    >>> from daylight.search import Parameter, Range, Settings, SobolSampler, Space, sampled
    >>> space = Space(parameters=(Parameter(name="depth", domain=Range(low=1, high=9, whole=True)),))
    >>> searcher = sampled(Settings(units=10, trials=3), space, SobolSampler(dimensions=1, seed=0))
    >>> 1 <= searcher.on_slot().params["depth"] <= 9
    True
    """

    def __init__(self, dimensions: int, seed: int) -> None:
        self._sobol = Sobol(dimensions, seed)

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return a point of the sequence.

        Parameters
        ----------
        number : int
            Number of the proposal, from 1.
        seen : Observations
            Observations, for the encoder of the space.

        Returns
        -------
        dict of str to Any
            Hyperparameters by name.
        """
        return seen.encoder.decode(self._sobol.point(number - 1))


class ListSampler:
    """Sampler that proposes given hyperparameters one after another, such as the points of a grid."""

    def __init__(self, points: Sequence[dict[str, Value]]) -> None:
        self._points = points

    def ask(self, number: int, seen: Observations) -> dict[str, Value]:
        """Return the hyperparameters at index `number - 1` of the list; raises IndexError beyond the last."""
        return dict(self._points[number - 1])


def stream(seed: int, number: int) -> Random:
    """Return a generator of the random numbers for one proposal.

    They depend on (seed, number) alone, so that a log of decisions can be replayed from any entry.

    Parameters
    ----------
    seed : int
        Seed of the search.
    number : int
        Number of the proposal, from 1.

    Returns
    -------
    random.Random
        A new generator, shared with no other proposal.

    Examples
    --------
    >>> from daylight.search import stream
    >>> stream(0, 7).random() == stream(0, 7).random()
    True
    >>> stream(0, 7).random() == stream(0, 8).random()
    False
    """
    return Random(f"{seed} {number}")  # seeded by SHA-512 of the text: similar seeds give unrelated streams
