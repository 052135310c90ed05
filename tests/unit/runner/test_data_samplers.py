"""Test that a DataLoader's own sampler decides which samples are trained, with equal results on every call."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from kernel_backend.errors import InvalidDefinition
from tests.support.samples import Noisy, batches, rows

RARE = torch.tensor([0.5 / 20] * 20 + [0.5 / 3] * 3)  # of 23 samples the last three are half of what is drawn


def loader(sampler, data=None, **options):
    return DataLoader(data or Noisy(), batch_size=6, sampler=sampler, **options)


def weighted(count=23, generator=None):
    return WeightedRandomSampler(RARE, count, generator=generator)


def indices(steps):
    return [row[-1] for row in rows(steps)]


def test_a_rare_class_is_drawn_as_often_as_its_weight_says():
    drawn = indices(batches(loader(weighted(6000))).steps(0, 1000))
    assert 0.45 < sum(index >= 20 for index in drawn) / len(drawn) < 0.55


def test_each_epoch_draws_anew_and_as_many_as_the_sampler_gives():
    found = batches(loader(weighted(13)))
    assert (found.per_epoch, found.samples_per_epoch) == (3, 13)
    drawn = indices(found.steps(0, 6))
    assert len(drawn) == 26
    assert drawn[:13] != drawn[13:]
    assert drawn == indices(batches(loader(weighted(13))).steps(0, 6))


@pytest.mark.parametrize("first", [1, 4, 7])
@pytest.mark.parametrize("workers", [0, 2])
def test_loading_may_begin_at_any_step(first, workers):
    whole = rows(itertools.islice(batches(loader(weighted())).steps(0, 9), first, None))
    assert rows(batches(loader(weighted(), num_workers=0), workers=workers).steps(first, 9)) == whole


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_share_what_it_draws(count):
    whole = rows(batches(loader(weighted())).steps(0, 9))
    steps = [list(batches(loader(weighted()), range(rank, rank + 1), count).steps(0, 9)) for rank in range(count)]
    assert rows([[each for shares in step for each in shares] for step in zip(*steps, strict=True)]) == whole


def test_its_own_generator_follows_from_the_seed_too():
    once, again = (
        indices(batches(loader(weighted(generator=torch.Generator().manual_seed(seed)))).steps(0, 4)) for seed in (1, 2)
    )
    assert once == again


def test_drawing_leaves_the_main_generators_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    indices(batches(loader(weighted(), data=TensorDataset(torch.zeros(23, 3), torch.arange(23)))).steps(0, 3))
    assert torch.equal(torch.rand(3), expected)


def test_a_validation_sees_what_its_sampler_gives_and_nothing_else():
    found = batches(loader(SubsetRandomSampler([2, 3, 5, 7, 11, 13, 17])))
    once = indices(found.in_order())
    assert sorted(once) == [2, 3, 5, 7, 11, 13, 17]
    assert indices(found.in_order()) == once


@pytest.mark.parametrize(
    "sampler",
    [RandomSampler(Noisy()), SequentialSampler(Noisy()), DistributedSampler(Noisy(), num_replicas=2, rank=0)],
    ids=["random", "sequential", "distributed"],
)
def test_a_plain_order_is_that_of_the_seed(sampler):
    assert indices(batches(loader(sampler)).steps(0, 4)) == indices(batches(Noisy()).steps(0, 4))


def test_random_draws_with_replacement_are_no_plain_order():
    drawn = indices(batches(loader(RandomSampler(Noisy(), replacement=True, num_samples=60))).steps(0, 10))
    assert len(drawn) == 60
    assert len(set(drawn)) <= 23


class Own(Sampler):
    def __init__(self, draw):
        self.draw = draw

    def __iter__(self):
        return iter(self.draw(self))


def counted(sampler):
    sampler.calls = getattr(sampler, "calls", 0) + 1
    return [sampler.calls]


def longer_each_epoch(sampler):
    return range(3 + sampler.epoch)


class Growing(Own):
    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize(
    ("sampler", "says"),
    [
        (Own(counted), r"\(a Own\) gives other indices when it is asked again with the same random numbers"),
        (Own(lambda _: os.urandom(8)), "gives other indices when it is asked again"),
        (Own(lambda _: ["a", "b"]), "gives what is no index"),
        (Own(lambda _: itertools.count()), "gives more than 1,000,000 indices: an epoch must end"),
        (Own(lambda _: []), "gives no index"),
    ],
)
def test_what_cannot_be_drawn_again_is_refused(sampler, says):
    with pytest.raises(InvalidDefinition, match=says):
        batches(loader(sampler))


def test_epochs_of_other_lengths_are_refused():
    with pytest.raises(InvalidDefinition, match="gives 4 indices in epoch 2, and 3 in the first"):
        indices(batches(loader(Growing(longer_each_epoch))).steps(0, 2))


def test_indices_of_numpy_are_indices():
    assert indices(batches(loader(Own(lambda _: np.array([3, 1, 2])))).steps(0, 1)) == [3, 1, 2]
