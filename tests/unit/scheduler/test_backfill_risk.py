"""Test the probability that enough slots are free by a time: exact for few runs, bounded from above for many."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.scheduler import backfill_risk
from kernel_backend.scheduler.backfill_risk import chance_of_enough

RELEASED = st.lists(st.tuples(st.integers(1, 8), st.floats(0.0, 1.0)), max_size=6)


def by_enumeration(missing: int, released: list[tuple[int, float]]) -> float:
    """Return the probability that enough slots are released, by enumerating all cases."""
    cases = product((False, True), repeat=len(released))
    return sum(
        prod(p if ends else 1.0 - p for ends, (_, p) in zip(case, released, strict=True))
        for case in cases
        if sum(slots for ends, (slots, _) in zip(case, released, strict=True) if ends) >= missing
    )


@given(missing=st.integers(-2, 20), released=RELEASED)
def test_it_is_the_sum_over_all_cases(missing: int, released: list[tuple[int, float]]):
    assert chance_of_enough(missing, released) == pytest.approx(by_enumeration(missing, released), abs=1e-9)


@given(missing=st.integers(1, 20), released=RELEASED)
def test_of_many_runs_it_is_rather_too_high(missing: int, released: list[tuple[int, float]]):
    exact = chance_of_enough(missing, released)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill_risk, "_MOST_EXACT", -1)
        assert chance_of_enough(missing, released) >= exact - 1e-9
