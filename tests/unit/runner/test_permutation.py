"""Test the order of an epoch: a permutation with random access."""

from __future__ import annotations

import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_backend.runner.data.permutation import LARGEST_LISTED, LazyPermutation, Permutation

VAST = 10**9


def test_an_epoch_has_every_sample_once_in_an_order_of_its_own():
    assert sorted(Permutation(0, 1, 100).slice(0, 100).tolist()) == list(range(100))
    assert Permutation(0, 0, 10).slice(0, 10).tolist() == [
        3,
        8,
        5,
        4,
        2,
        6,
        1,
        0,
        9,
        7,
    ]  # and for ever: NUMERICS guards it
    orders = {tuple(Permutation(seed, epoch, 100).slice(0, 100).tolist()) for seed in (0, 1) for epoch in (1, 2)}
    assert len(orders) == 4


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 5000), value=st.integers(0, 2**63 - 1))
def test_a_scattered_order_has_every_sample_once(count, value):
    found = LazyPermutation(value, count).at(torch.arange(count))
    assert torch.equal(found.sort().values, torch.arange(count))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 99, 100, 101])
def test_a_scattered_order_of_few_samples_has_every_one_once(count):
    for value in range(20):
        assert sorted(LazyPermutation(value, count).at(torch.arange(count)).tolist()) == list(range(count))


def test_a_scattered_order_is_fixed_for_ever_and_differs_by_epoch():
    assert LazyPermutation(7, VAST).at(torch.arange(3)).tolist() == [137574861, 988633829, 662858645]
    one, other = (Permutation(0, epoch, VAST).slice(0, 1000) for epoch in (0, 1))
    assert (one == other).sum() < 5


def test_any_place_of_a_vast_order_is_read_by_itself():
    order = Permutation(3, 2, VAST)
    whole = order.slice(5 * 10**8, 5 * 10**8 + 1000)
    assert torch.equal(whole[400:600], order.slice(5 * 10**8 + 400, 5 * 10**8 + 600))
    assert len(whole.unique()) == 1000
    assert 0 <= int(whole.min()) <= int(whole.max()) < VAST


def test_a_vast_order_holds_no_list():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    order = Permutation(0, 0, VAST)
    places = [order.slice(start, start + 256) for start in range(0, VAST, VAST // 50)]
    assert len(torch.cat(places).unique()) == 50 * 256
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in KB; as a list it would take 8 GB
    assert grown < 100_000


@pytest.mark.parametrize("count", [LARGEST_LISTED + 1, VAST])
def test_a_scattered_order_looks_random(count):
    """Pairs of neighbours are spread evenly over a grid of 64 by 64: chi squared is within six standard deviations."""
    for value in range(2):
        where = LazyPermutation(value, count).at(torch.arange(count // 3, count // 3 + 300_000)) * 64 // count
        for apart in (1, 7):
            pairs = torch.bincount(where[:-apart] * 64 + where[apart:], minlength=4096).double()
            expected = pairs.sum() / 4096
            excess = ((pairs - expected) ** 2 / expected).sum() - 4095
            assert abs(float(excess)) < 6 * (2 * 4095) ** 0.5
