"""Test that samples, their order and their random numbers follow from seed and position alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.data import share, source
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.data.shares import BatchSplit
from kernel_backend.runner.data.source import AUTO_WORKERS, draws_nothing
from tests.support.samples import Flow, Noisy, batches, rows


@pytest.mark.parametrize(("count", "size"), [(12, 3), (7, 3), (1, 3), (0, 2), (5, 4)])
def test_shares_are_consecutive_and_as_equal_as_can_be(count, size):
    slices = [share(count, rank, size) for rank in range(size)]
    assert [i for each in slices for i in range(count)[each]] == list(range(count))
    lengths = [each.stop - each.start for each in slices]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("data", [Noisy(), Flow()], ids=["by index", "a stream"])
def test_logical_ranks_together_see_what_one_sees_wherever_they_are(data, count):
    """The samples and their random numbers are the same, whichever process draws them."""
    whole = rows(batches(data).steps(0, 12))
    for size in range(1, count + 1):
        processes = [range(count)[share(count, rank, size)] for rank in range(size)]
        steps = [list(batches(data, mine, count).steps(0, 12)) for mine in processes if mine]
        together = [[each for shares in step for each in shares] for step in zip(*steps, strict=True)]
        assert rows(together) == whole
        assert all(sum(each.samples for each in step) == step[0].total for step in together)


def test_samples_of_an_epoch_come_in_its_order_and_the_next_epoch_follows():
    found = batches(Noisy())
    steps = list(found.steps(0, 12))
    assert [row[-1] for row in rows(steps)] == Permutation(1, 0, 23).slice(0, 23).tolist() + Permutation(
        1, 1, 23
    ).slice(0, 23).tolist() + Permutation(1, 2, 23).slice(0, 23).tolist()
    assert [(step[0].epoch, step[0].last, step[0].total) for step in steps[2:5]] == [
        (0, False, 6),
        (0, True, 5),
        (1, False, 6),
    ]
    assert (found.per_epoch, found.samples_per_epoch) == (4, 23)


@pytest.mark.parametrize("first", range(0, 14, 3))
def test_loading_may_begin_at_any_step(first):
    assert rows(batches(Noisy()).steps(first, 14)) == rows(itertools.islice(batches(Noisy()).steps(0, None), first, 14))


def test_beginning_late_in_vast_data_asks_for_no_sample_before():
    class Vast(Noisy):
        asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return super().__getitem__(index)

    data = Vast(10**9)
    assert len(rows(batches(data).steps(10**8, 10**8 + 2))) == 12
    assert data.asked == 12


def test_validation_draws_the_same_every_time_and_leaves_the_main_generators_alone():
    data = batches(Noisy())
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(()), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    once = rows(data.in_order())
    assert [row[-1] for row in once] == list(range(23))
    assert (torch.rand(()), np.random.rand()) == expected
    assert rows(data.in_order()) == once


def test_tensors_are_indexed_at_once_with_the_bits_of_a_collated_list():
    x, y = torch.randn(23, 4), torch.arange(23)
    direct = batches(Subset(Subset(TensorDataset(x, y), range(20)), range(2, 20)))
    collated = batches([(x[i], y[i]) for i in range(2, 20)])
    for one, other in zip(direct.steps(0, 3), collated.steps(0, 3), strict=True):
        assert torch.equal(one[0].data[0], other[0].data[0])
        assert torch.equal(one[0].data[1], other[0].data[1])


def test_what_lies_ready_in_memory_needs_no_workers_and_no_random_numbers():
    tensors = TensorDataset(torch.ones(3))
    for quiet in (tensors, Subset(tensors, [1]), ConcatDataset([tensors, tensors]), [1, 2]):
        assert draws_nothing(quiet)
        assert source(quiet, "train_data").workers(None) == 0
    for other in (Noisy(), Subset(Noisy(), [1]), ConcatDataset([tensors, Noisy()])):
        assert not draws_nothing(other)
        assert source(other, "train_data").workers(None) == AUTO_WORKERS
    assert source(Noisy(), "train_data").workers(0) == 0
    assert source(DataLoader(Noisy(), num_workers=1), "train_data").workers(None) == 1
    assert source(DataLoader(Noisy(), num_workers=1), "train_data").workers(3) == 3


class Together(Noisy):
    """Dataset that reads many samples in one call."""

    def __init__(self, draws):
        super().__init__()
        self.draws, self.calls = draws, 0

    def __getitem__(self, index):
        return super().__getitem__(index) if self.draws(index) else (torch.zeros(3), index)

    def __getitems__(self, indices):
        self.calls += 1
        return [self[index] for index in indices]


def test_samples_are_read_together_where_they_draw_nothing():
    data = Together(lambda index: False)
    assert len(rows(batches(data).steps(0, 4))) == 23
    assert data.calls == 4


@pytest.mark.parametrize("draws", [lambda index: True, lambda index: index == 9], ids=["each", "one"])
def test_samples_that_draw_are_read_one_by_one_though_they_could_be_read_together(draws):
    together, alone = Together(draws), Together(draws)
    alone.__getitems__ = None
    assert rows(batches(together).steps(0, 8)) == rows(batches(alone).steps(0, 8))
    assert rows(batches(together, range(1), 3).steps(0, 8))[:2] == rows(batches(alone).steps(0, 8))[:2]


def test_samples_that_draw_are_read_together_only_once():
    data = Together(lambda index: True)
    list(batches(data).steps(0, 8))
    assert data.calls == 1


def test_of_a_users_loader_dataset_collate_and_batch_size_are_kept():
    loader = DataLoader([1, 2, 3, 4, 5], batch_size=2, collate_fn=lambda samples: ("mine", samples), drop_last=True)
    found = batches(loader)
    assert [step[0].data for step in found.in_order()] == [("mine", [1, 2]), ("mine", [3, 4])]
    assert (found.per_epoch, found.samples_per_epoch) == (2, 4)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (DataLoader([1, 2], batch_sampler=[[0], [1]]), "batch_sampler"),
        (DataLoader(Flow(), batch_size=None), "batch_size=None"),
        ([], "without a single sample"),
        ({"a": 1}, "returned a dict"),
        (torch.tensor(1.0), "TensorDataset"),
        ({"x": torch.ones(3), "y": torch.ones(4)}, "returned a dict"),
        (None, "returned a NoneType"),
    ],
)
def test_what_is_no_data_is_told_apart_with_the_way_out(value, says):
    with pytest.raises(InvalidDefinition, match=says):
        source(value, "train_data")


@pytest.mark.parametrize(
    ("value", "first"),
    [
        (torch.arange(5.0), torch.arange(5.0)),
        (DataLoader(torch.arange(5.0), batch_size=5), torch.arange(5.0)),
        ((torch.arange(5.0), np.arange(5)), [torch.arange(5.0), torch.arange(5)]),
        ({"x": torch.arange(5.0), "y": np.arange(5)}, {"x": torch.arange(5.0), "y": torch.arange(5)}),
    ],
    ids=["a tensor", "a tensor in a loader", "columns", "named columns"],
)
def test_tensors_and_arrays_are_samples_by_row(value, first):
    (step,) = batches(value).in_order()
    assert step[0].samples == 5
    torch.testing.assert_close(step[0].data, first, rtol=0, atol=0)
    assert source(value, "train_data").workers(None) == 0


def test_a_long_tuple_of_tensors_is_a_tuple_of_samples():
    assert source(tuple(torch.ones(3) for _ in range(5)), "train_data").length == 5


def test_the_last_batch_is_kept_though_it_is_small():
    assert batches(list(range(13))).per_epoch == 3
    assert [step[0].samples for step in batches(list(range(13))).in_order()] == [6, 6, 1]


def test_a_sample_computes_with_one_thread_as_it_would_in_a_worker():
    class Threads(Noisy):
        def __getitem__(self, index):
            return torch.get_num_threads()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert {int(each) for step in batches(Threads()).in_order() for each in step[0].data} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_with_pairs_no_share_is_one_sample_alone_and_none_is_lost(ranks):
    for size in range(3, 9):
        for count in range(2, 40):
            cut = BatchSplit(size, False, range(ranks), ranks, pairs=True)
            taken = []
            for number in range(cut.per_epoch(count)):
                batch = range(count)[cut.batch(number, count)]
                shares = [batch[each] for each in cut.shares(len(batch))]
                assert 1 not in map(len, shares), (size, count, number, shares)
                taken += [sample for each in shares for sample in each]
            assert taken == list(range(count))


@pytest.mark.parametrize("samples", [1, 4, 5, 23, 24, 29])
def test_whole_shares_are_the_batches_of_one_process(samples):
    alone = BatchSplit(4, False, range(1), 1)
    expected = [alone.batch(number, samples) for number in range(alone.per_epoch(samples))]
    found = []
    for number in range(-(-samples // 12)):
        begin, total = number * 12, min(12, samples - number * 12)
        for rank in range(3):
            cut = BatchSplit(12, False, range(rank, rank + 1), 3, filled=True, whole=True)
            (share,) = cut.shares(total)
            assert share.stop > share.start
            if cut.own_samples(total):
                found.append(slice(begin + share.start, begin + share.stop))
    assert found == expected


def test_a_share_is_one_sample_only_where_pairs_are_asked_for_in_vain():
    plain = BatchSplit(6, False, range(2), 2)
    assert plain.batch(3, 19) == slice(18, 19)
    assert plain._replace(pairs=True).batch(3, 19) == slice(17, 19)
    assert plain._replace(pairs=True).shares(1) == [slice(0, 1), slice(1, 1)]
    assert plain._replace(pairs=True).shares(4) == plain.shares(4)


def test_with_pairs_a_last_sample_that_is_dropped_takes_none_with_it():
    dropping = BatchSplit(6, True, range(2), 2, pairs=True)
    assert [dropping.batch(number, 19) for number in range(dropping.per_epoch(19))] == [
        *(slice(0, 6), slice(6, 12), slice(12, 18)),
    ]


@pytest.mark.parametrize("data", [Noisy(19), Flow(19)], ids=["by index", "a stream"])
def test_samples_are_the_same_with_pairs_and_without(data):
    def indices(pairs):
        found = batches(data, range(4), 4)
        if pairs:
            found.keep_pairs()
        return [row[-1] for row in rows(found.steps(0, 4))]

    assert indices(True) == indices(False)
