"""Test datasets with their own random generators: samples are equal wherever they are read or resumed."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from kernel_backend.runner.determinism.seeds import Draws
from tests.support.samples import batches, rows

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Transform:
    """Augmentation with inner generators that composed transforms share, as in common libraries."""

    def __init__(self, *inner):
        self.inner = list(inner)
        self.share(np.random.default_rng(3), random.Random(3))

    def share(self, generator, python):
        self.generator, self.python = generator, python
        for each in self.inner:
            each.share(generator, python)

    def __call__(self, noise):
        for each in self.inner:
            noise = each(noise)
        return noise + torch.tensor([self.generator.integers(2**40), self.python.getrandbits(40), 0])


class Augmented(Dataset):
    """Dataset whose samples draw from four generators of its own."""

    def __init__(self):
        self.transform = Transform(Transform(), Transform(Transform()))
        self.old, self.torchs = np.random.RandomState(3), torch.Generator().manual_seed(3)

    def __len__(self):
        return 23

    def __getitem__(self, index):
        words = torch.randint(2**40, (3,), generator=self.torchs)
        return self.transform(words + int(self.old.randint(2**31))), index


class Late(Augmented):
    """Dataset that creates its generators at the first read, in each process."""

    def __init__(self):
        self.transform = None

    def __getitem__(self, index):
        if self.transform is None:
            super().__init__()
        return super().__getitem__(index)


class Together(Augmented):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Collating(Augmented):
    """Dataset whose `collate` draws random numbers, too."""

    def __init__(self):
        super().__init__()
        self.shift = np.random.default_rng(4)

    def collate(self, samples):
        noise, indices = zip(*samples, strict=True)
        return torch.stack(noise) + int(self.shift.integers(2**40)), torch.tensor(indices)


def loaded(kind):
    data = kind()
    return DataLoader(data, batch_size=6, collate_fn=data.collate) if kind is Collating else Subset(data, range(23))


KINDS = [Augmented, Late, Together, Collating]


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_of_workers_changes_what_a_datasets_own_generators_draw(data, kind):
    expected = rows(batches(loaded(kind)).steps(0, 14))
    assert len({tuple(row[:3]) for row in expected}) == len(expected)
    for workers in (1, 2, 4) if kind is Augmented else (2,):
        assert rows(data(loaded(kind), workers=workers).steps(0, 14)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_reading_goes_on_at_any_step_with_the_same_draws(kind):
    whole = list(batches(loaded(kind)).steps(0, 14))
    for first in (1, 4, 9):
        assert rows(batches(loaded(kind)).steps(first, 14)) == rows(whole[first:])


@pytest.mark.parametrize("kind", [Augmented, Late, Together])
def test_what_a_sample_draws_depends_on_no_other_sample(kind):
    whole = rows(batches(loaded(kind)).steps(0, 8))
    processes = [list(batches(loaded(kind), range(rank, rank + 1), 3).steps(0, 8)) for rank in range(3)]
    assert rows([[each for shares in step for each in shares] for step in zip(*processes, strict=True)]) == whole


def test_validation_draws_the_same_every_time():
    data = batches(Augmented())
    once = rows(data.in_order())
    list(data.steps(0, 3))
    assert rows(data.in_order()) == once


def test_a_dataset_without_generators_is_asked_for_each_sample_once():
    class Counting(Augmented):
        asked = 0

        def __init__(self):
            pass

        def __getitem__(self, index):
            self.asked += 1
            return index

    data = Counting()
    list(batches(data).steps(0, 4))
    assert data.asked == 23


class Seldom(Dataset):
    """Few samples draw, all from other generators; the others have none but their index."""

    draws = (
        lambda: random.getrandbits(40),
        lambda: int(np.random.randint(2**31)),
        lambda: int(torch.randint(2**40, ())),
        lambda: int(2**40 * random.gauss()),
        lambda: int(2**40 * np.random.normal()),
    )

    def __init__(self, rare):
        self.rare = rare

    def __len__(self):
        return 23

    def __getitem__(self, index):
        turn = self.rare.index(index) if index in self.rare else None
        return torch.tensor([0 if turn is None else self.draws[turn % 5]()]), index


@pytest.mark.parametrize("rare", [[22], [3, 4], [20, 7, 19, 18, 2], list(range(23))])
def test_a_sample_that_is_the_first_to_draw_has_the_numbers_of_its_place(rare):
    """Generators that nothing has drawn from are not seeded for each sample."""
    whole = batches(Seldom(rare))
    order = [row[1] for row in rows(whole.steps(0, 8))]
    seeds = Draws(1, "sample")
    expected = []
    for position, index in enumerate(order):
        seeds.at(position)
        expected.append([int(Seldom(rare)[index][0]), index])
    assert rows(batches(Seldom(rare)).steps(0, 8)) == expected
    assert rows(batches(Seldom(rare)).steps(3, 8)) == expected[18:]


class Stream(IterableDataset):
    """Stream that shuffles and draws with its own generators."""

    def __init__(self):
        self.rng, self.shuffle = np.random.default_rng(3), random.Random(3)

    def __iter__(self):
        for index in self.shuffle.sample(range(23), 23):
            yield torch.from_numpy(self.rng.integers(2**40, size=3)), index


class Keeping(Stream):
    """Stream that saves its position and its generators itself."""

    taken = 0

    def __iter__(self):
        begin, self.taken, self.before = self.taken, 0, (self.shuffle.getstate(), self.rng.bit_generator.state)
        for noise, index in super().__iter__():
            self.taken += 1
            if self.taken > begin:
                yield noise, index
        self.taken = 0

    def state_dict(self):
        shuffle, rng = self.before
        return {"taken": self.taken, "shuffle": shuffle, "rng": json.dumps(rng)}

    def load_state_dict(self, state):
        self.taken = state["taken"]
        self.shuffle.setstate(state["shuffle"])
        self.rng.bit_generator.state = json.loads(state["rng"])


@pytest.mark.parametrize("kind", [Stream, Keeping])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("at", [1, 3, 4, 6, 9])
def test_a_stream_with_generators_of_its_own_goes_on_where_it_was(data, kind, workers, at):
    whole = rows(batches(kind()).steps(0, 14))
    assert len({tuple(row[:3]) for row in whole}) == len(whole)
    first = data(kind(), workers=workers)
    steps = first.steps(0, 14)
    before = [next(steps) for _ in range(at)]
    state = json.loads(json.dumps(first.state()))
    second = data(kind(), workers=workers)
    second.restore(state)
    assert rows(before) + rows(second.steps(at, 14)) == whole


def test_a_stream_is_validated_on_the_same_every_time():
    data = batches(Stream())
    once = rows(data.in_order())
    assert rows(data.in_order()) == once
