"""Test that the largest fitting batch size is found by few tries, up to a granularity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.runner.batch_size.memory import is_exhausted
from kernel_backend.runner.batch_size.sizes import PARTS, Found, largest


@given(st.integers(1, 10**6), st.integers(0, 2 * 10**6))
def test_the_largest_size_that_fits_is_found_with_few_tries(most: int, holds: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= holds

    found = largest(fits, most)
    best = min(holds, most)
    assert found.size <= best
    assert best - found.size <= found.size // PARTS
    assert found.misfit is None or found.size < found.misfit <= most
    assert (found.misfit is None) == (holds >= most)
    assert found.misfit is None or (found.misfit in tried and holds < found.misfit)
    assert found.size in tried or found.size == 0
    assert len(tried) == len(set(tried)) <= most.bit_length() + PARTS.bit_length()
    assert all(1 <= each <= most for each in tried)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_no_size_of_more_than_twice_what_fits_is_tried(most: int, holds: int) -> None:
    tried: list[int] = []
    largest(lambda size: tried.append(size) or size <= holds, most)
    assert max(tried) <= max(2, 2 * holds)


@pytest.mark.parametrize(
    ("holds", "most", "expected"),
    [
        (0, 100, Found(0, 1)),
        (1, 100, Found(1, 2)),
        (1, 1, Found(1, None)),
        (100, 70, Found(70, None)),
        (100, 1000, Found(96, 104)),
        (13, 1000, Found(13, 14)),
    ],
)
def test_sizes_are_round_where_they_are_large(holds: int, most: int, expected: Found) -> None:
    assert largest(lambda size: size <= holds, most) == expected


def test_errors_of_exhausted_memory_are_told_from_others() -> None:
    text = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
    assert is_exhausted(RuntimeError(text))
    assert is_exhausted(MemoryError())
    assert not is_exhausted(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_exhausted(ValueError("out of memory"))
