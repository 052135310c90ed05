"""Which samples, in which order, with which random numbers: functions of seed and position alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data import Batches, order, share, source


class Noisy(Dataset):
    """Every sample draws from all three generators."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return torch.tensor([index, random.random(), np.random.rand(), float(torch.rand(()))]), index


def batches(value, rank=0, size=1, batch_size=6):
    return Batches(source(value, "train_data"), batch_size, 1, "sample", rank, size)


def rows(found):
    return torch.cat([batch.data[0] for batch in found if batch.samples])


def test_an_epoch_has_every_sample_once_in_an_order_of_its_own():
    assert sorted(order(0, 1, 100).tolist()) == list(range(100))
    assert order(0, 0, 10).tolist() == [3, 8, 5, 4, 2, 6, 1, 0, 9, 7]  # and for ever: NUMERICS guards it
    assert order(0, 1, 100).tolist() != order(0, 2, 100).tolist()
    assert order(0, 1, 100).tolist() != order(1, 1, 100).tolist()


@pytest.mark.parametrize(("count", "size"), [(12, 3), (7, 3), (1, 3), (0, 2), (5, 4)])
def test_shares_are_consecutive_and_as_equal_as_can_be(count, size):
    slices = [share(count, rank, size) for rank in range(size)]
    assert [i for each in slices for i in range(count)[each]] == list(range(count))
    lengths = [each.stop - each.start for each in slices]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("size", [2, 3, 8])
def test_the_ranks_together_see_what_one_process_sees(size):
    """The same samples with the same random numbers, whichever rank draws them."""
    whole = list(batches(Noisy()).shuffled(epoch=1))
    ranks = [list(batches(Noisy(), rank, size).shuffled(epoch=1)) for rank in range(size)]
    for number, batch in enumerate(whole):
        shares = [each[number] for each in ranks]
        assert torch.equal(rows(shares), batch.data[0])
        assert sum(each.samples for each in shares) == batch.samples == shares[0].total


def test_loading_may_begin_anywhere():
    everything = list(batches(Noisy()).shuffled(epoch=2))
    rest = list(batches(Noisy()).shuffled(epoch=2, first=2))
    assert torch.equal(rows(rest), rows(everything[2:]))


def test_loader_workers_change_nothing():
    alone = DataLoader(Noisy(), batch_size=5)
    helped = DataLoader(Noisy(), batch_size=5, num_workers=2)
    state = torch.get_rng_state()
    assert torch.equal(rows(batches(helped).shuffled(0)), rows(batches(alone).shuffled(0)))
    torch.set_rng_state(state)


def test_tensors_are_indexed_at_once_with_the_bits_of_a_collated_list():
    x, y = torch.randn(23, 4), torch.arange(23)
    direct = batches(Subset(Subset(TensorDataset(x, y), range(20)), range(2, 20)))
    collated = batches([(x[i], y[i]) for i in range(2, 20)])
    for one, other in zip(direct.shuffled(0), collated.shuffled(0), strict=True):
        assert torch.equal(one.data[0], other.data[0])
        assert torch.equal(one.data[1], other.data[1])


def test_of_a_users_loader_dataset_collate_and_batch_size_are_kept():
    loader = DataLoader([1, 2, 3, 4, 5], batch_size=2, collate_fn=lambda samples: ("mine", samples), drop_last=True)
    found = list(batches(loader).in_order())
    assert [batch.data for batch in found] == [("mine", [1, 2]), ("mine", [3, 4])]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((each for each in range(3)), "only be read from its beginning"),
        (DataLoader([1, 2], batch_sampler=[[0], [1]]), "batch_sampler"),
        ([], "without a single sample"),
        ({"a": 1}, "returned a dict"),
        (torch.ones(3), "TensorDataset"),
    ],
)
def test_what_is_no_dataset_is_told_apart_with_the_way_out(value, says):
    with pytest.raises(InvalidDefinition, match=says):
        source(value, "train_data")


def test_the_last_batch_is_kept_though_it_is_small():
    assert batches(list(range(13))).per_epoch == 3
    assert [batch.samples for batch in batches(list(range(13))).in_order()] == [6, 6, 1]
