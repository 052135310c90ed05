"""Test an account's mean usage over time, for any grid of intervals."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.scheduler.usage import averages

SPELL = st.tuples(st.floats(0, 100), st.one_of(st.none(), st.floats(0, 100)), st.integers(1, 8))


def held_between(intervals, begin: float, end: float, now: float) -> float:
    """Return the mean usage by a slow, direct computation."""
    seconds = 0.0
    for begun, ended, slots in intervals:
        until = now if ended is None else ended
        seconds += slots * max(0.0, min(until, end) - max(begun, begin)) if begun < until else 0.0
    return seconds / (end - begin)


def test_what_is_held_through_an_interval_counts_whole_and_in_a_part_of_it_in_part():
    assert averages([(0.0, 10.0, 4)], [0.0, 5.0, 10.0, 15.0], now=20.0) == [4.0, 4.0, 0.0]
    assert averages([(2.0, 7.0, 4)], [0.0, 5.0, 10.0], now=20.0) == pytest.approx([2.4, 1.6])
    assert averages([(-9.0, None, 2), (8.0, 9.0, 10)], [0.0, 10.0, 20.0], now=15.0) == pytest.approx([3.0, 1.0])
    assert averages([], [0.0, 1.0], now=5.0) == [0.0]


@given(st.lists(SPELL, max_size=20), st.floats(-10, 90), st.floats(0.5, 50), st.integers(1, 30), st.floats(0, 120))
def test_averages_are_those_of_every_spell_by_itself(intervals, since, span, points, now):
    at = [since + span * nth / points for nth in range(points + 1)]
    expected = [held_between(intervals, begin, end, now) for begin, end in pairwise(at)]
    assert averages(intervals, at, now) == pytest.approx(expected, abs=1e-6)
