"""Test that each proposal has its own random numbers, independent of those of the others."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.observations import Observations
from kernel_backend.search.samplers.base import RandomSampler, stream

ASKS, DIMENSIONS = 10_000, 4
SPACE = Space(parameters=tuple(Parameter(name=f"x{at}", domain=Range(low=0, high=1)) for at in range(DIMENSIONS)))


def asked(seed: int) -> np.ndarray:
    sampler, seen = RandomSampler(seed), Observations(Encoder(SPACE), "min", [1])
    asks = [sampler.ask(number, seen) for number in range(1, ASKS + 1)]
    return np.array([[float(str(value)) for value in each.values()] for each in asks])


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_points_are_anywhere_alike(seed: int) -> None:
    points = asked(seed)
    counts = np.array([np.histogram(column, bins=20, range=(0, 1))[0] for column in points.T])
    # Chi squared of 19 degrees of freedom: above 54 once in 30,000 times.
    assert (((counts - ASKS / 20) ** 2) / (ASKS / 20)).sum(axis=1).max() < 54


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_no_ask_tells_of_the_next_one_nor_of_another_seed_s(seed: int) -> None:
    points, others = asked(seed), asked(seed + 1)
    columns = np.hstack([points[:-1], points[1:], others[:-1]])
    apart = np.corrcoef(columns.T)[~np.eye(columns.shape[1], dtype=bool)]
    assert np.abs(apart).max() < 4.5 / np.sqrt(ASKS)


def test_no_two_asks_have_the_same_numbers() -> None:
    first = {stream(seed, number).random() for seed in range(100) for number in range(100)}
    assert len(first) == 100 * 100
