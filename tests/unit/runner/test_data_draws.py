"""Test that each sample has its own random numbers, different from those of all others."""

from __future__ import annotations

import random

import numpy as np
import torch

from kernel_backend.runner.determinism.seeds import Draws, mix, reseed
from tests.support.samples import drawn
from tests.torture import draws


def test_no_two_samples_draw_the_same():
    seed = random.randrange(2**32)
    print(f"seed {seed}: {draws.run(40_000, seed)}")


def test_samples_have_seeds_of_their_own_in_generators_that_read_32_bits():
    """Of 10^6 random 32-bit seeds, about a hundred pairs would be equal (10^12 / 2 / 2^32)."""
    found = Draws(3, "sample")
    seeds = torch.empty(100_000, dtype=torch.int64)
    for position in range(len(seeds)):
        found.at(position)
        seeds[position] = torch.default_generator.initial_seed()
    assert len(seeds.unique()) == len(seeds)
    assert int(seeds.max()) < 2**31


def test_beyond_two_thousand_million_samples_the_generators_do_not_pair_up_again():
    found = Draws(0, "sample")
    pairs = set()
    for position in (5, 5 + 2**31, 5 + 2**32, 5 + 3 * 2**31):
        found.at(position)
        pairs.add(tuple(drawn().tolist()))
    assert len(pairs) == 4
    assert len({pair[0] for pair in pairs}) == 4


def test_numpy_and_torch_do_not_draw_the_same_numbers():
    """Both use the same kind of generator, so that equal seeds would give equal numbers."""
    np.random.seed(5)
    torch.manual_seed(5)
    words = np.random.randint(2**32, size=100, dtype=np.uint32).tolist()
    assert set(words) & set(torch.randint(2**32, (50,)).tolist())
    for value in (0, 5, mix(1, "step", 2)):
        reseed(value)
        words = np.random.randint(2**32, size=100, dtype=np.uint32).tolist()
        assert not set(words) & set(torch.randint(2**32, (50,)).tolist())


def test_draws_follow_from_seed_tag_and_position():
    def of(seed, tag, position):
        Draws(seed, tag).at(position)
        return tuple(drawn().tolist())

    wheres = [(0, "sample", 7), (0, "sample", 8), (0, "validation", 7), (1, "sample", 7)]
    assert len({of(*where) for where in wheres}) == 4
    assert (
        of(*wheres[0]) == of(*wheres[0]) == (4665480353235259305, -5665123618976114538, 8469359758373189124)
    )  # and for ever: NUMERICS guards it
