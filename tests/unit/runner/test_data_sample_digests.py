"""Test that the first epoch's samples have one digest, independent of batching, sharing, loading and prefetching."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset

from kernel_backend.runner.data.sample_digest import SampleDigests, see
from tests.support.samples import Flow, Keeping, Noisy

X, Y = torch.arange(69.0).reshape(23, 3), torch.arange(23)
PAIRS = [(X[index], Y[index]) for index in range(23)]


class Read(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


SOURCES = {
    "tensors": lambda: TensorDataset(X, Y),
    "a subset": lambda: Subset(TensorDataset(X.flip(0), Y.flip(0)), range(22, -1, -1)),
    "a list": lambda: PAIRS,
    "joined": lambda: ConcatDataset([PAIRS[:5], PAIRS[5:]]),
    "a loader": lambda: DataLoader(PAIRS, batch_size=5, num_workers=2, collate_fn=lambda pairs: len(pairs)),
    "a stream": lambda: Read(PAIRS),
}


def seen(data, steps=None) -> SampleDigests:
    """Return the combined sample digest of an epoch's batches."""
    found = SampleDigests()
    for shares in data.steps(0, steps or data.per_epoch):
        for share in shares:
            found = found.and_(share.seen)
            if share.last and steps is None:
                return found
    return found


@pytest.mark.parametrize("kind", SOURCES)
def test_equal_samples_are_one_thing_whatever_holds_them(kind, data):
    assert seen(data(SOURCES[kind](), digested=True)) == see(PAIRS)


@pytest.mark.parametrize("source", [Noisy, Flow, Keeping])
@pytest.mark.parametrize(("size", "workers", "ranks"), [(4, 0, 1), (23, 1, 1), (5, 2, 1), (7, 0, 3), (2, 1, 2)])
def test_random_samples_are_the_same_at_any_batch_size_workers_and_ranks(source, size, workers, ranks, data):
    expected = seen(data(source(), batch_size=6, digested=True), steps=4)
    assert expected.samples == 23
    found = SampleDigests()
    for rank in range(ranks):
        own = data(source(), range(rank, rank + 1), ranks, batch_size=size, workers=workers, digested=True)
        found = found.and_(seen(own, steps=-(-23 // size)))
    assert found == expected


def test_only_the_first_epoch_and_only_where_asked_for(data):
    asked = [share.seen.samples for (share,) in data(PAIRS, batch_size=8, digested=True).steps(0, 7)]
    assert asked == [8, 8, 7, 0, 0, 0, 0]
    assert seen(data(PAIRS, batch_size=8)) == SampleDigests()
    flowing = [share.seen.samples for (share,) in data(Flow(), batch_size=8, digested=True).steps(0, 7)]
    assert flowing == [8, 8, 7, 0, 0, 0, 0]


def test_asking_changes_no_sample(data):
    def values(digested):
        return [share.data[0].tolist() for (share,) in data(Noisy(), batch_size=6, digested=digested).steps(0, 8)]

    assert values(True) == values(False)
