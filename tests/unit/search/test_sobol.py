"""Test Sobol points: those of Joe and Kuo, evenly in every elementary interval, and equal on every call."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc

from kernel_backend.search.samplers.sobol import BITS, DIMENSIONS, Sobol, _directions


def test_the_direction_numbers_are_those_of_scipy():
    theirs = qmc.Sobol(DIMENSIONS, scramble=False, bits=BITS).random(256)
    ours = [[_unscrambled(index, dimension) for dimension in range(DIMENSIONS)] for index in range(256)]
    assert np.array_equal(ours, theirs)


def _unscrambled(index: int, dimension: int) -> float:
    gray, number = index ^ index >> 1, 0
    for bit, direction in enumerate(_directions(dimension)):
        number ^= direction * (gray >> bit & 1)
    return number / 2**BITS


@given(st.integers(0, 2**63), st.integers(0, 40))
def test_every_dimension_has_one_point_in_each_of_equal_parts(seed: int, begin: int):
    sobol = Sobol(5, seed)
    points = [sobol.point(index) for index in range(32 * begin, 32 * (begin + 1))]
    for coordinates in zip(*points, strict=True):
        assert sorted(int(each * 32) for each in coordinates) == list(range(32))


@pytest.mark.parametrize("shape", [(64, 1), (32, 2), (16, 4), (8, 8), (2, 32)])
def test_two_dimensions_have_one_point_in_each_elementary_interval(shape: tuple[int, int]):
    sobol = Sobol(2, seed=7)
    points = [sobol.point(index) for index in range(64)]
    boxes = Counter((int(x * shape[0]), int(y * shape[1])) for x, y in points)
    assert set(boxes.values()) == {1}
    assert len(boxes) == 64


def test_points_are_far_more_even_than_random_ones():
    sobol = Sobol(8, seed=3)
    ours = qmc.discrepancy(np.array([sobol.point(index) for index in range(256)]))
    random = np.mean([qmc.discrepancy(np.random.default_rng(seed).random((256, 8))) for seed in range(5)])
    assert ours < random / 3


def test_a_point_depends_on_seed_and_number_alone():
    one, other = Sobol(3, seed=1), Sobol(3, seed=1)
    later = [one.point(index) for index in (5, 900, 0)]
    assert [other.point(index) for index in (0, 5, 900)] == [later[2], later[0], later[1]]
    assert Sobol(3, seed=2).point(5) != later[0]


def test_dimensions_beyond_the_direction_numbers_are_random_and_the_same_again():
    many = Sobol(DIMENSIONS + 40, seed=5)
    assert many.point(9) == Sobol(DIMENSIONS + 40, seed=5).point(9)
    assert many.point(9)[DIMENSIONS:] != many.point(10)[DIMENSIONS:]
    means = np.mean([many.point(index) for index in range(512)], axis=0)
    assert np.all(abs(means - 0.5) < 0.1)


@given(st.integers(0, 2**BITS - 1))
def test_coordinates_lie_within_the_cube(index: int):
    assert all(0 < each < 1 for each in Sobol(4, seed=0).point(index))
