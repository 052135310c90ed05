"""Test streams: one order for all ranks, and the same bits after resuming at any point."""

from __future__ import annotations

import json
import random

import pytest
from torch.utils.data import DataLoader

from kernel_backend.errors import DaylightError, InvalidDefinition
from tests.support.samples import Flow, Keeping, batches, drawn, rows


class OfIterators:
    """Stream that only has `__iter__`; its iterators hold the position."""

    def __iter__(self):
        return Steps()


class Steps:
    def __init__(self):
        self.inner = Keeping()
        self.samples = iter(self.inner)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.samples)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)


class Counted(Flow):
    def __len__(self):
        return self.count


class CountingPasses(Flow):
    """Stream whose samples depend on the number of completed passes, which it counts at the end of each."""

    begin = next = passes = 0

    def __iter__(self):
        begin, self.begin = self.begin, 0
        for number in range(begin, self.count):
            self.reads, self.next = self.reads + 1, number + 1
            yield drawn(), 1000 * self.passes + self.next
        self.passes += 1

    def state_dict(self):
        return {"next": self.next, "passes": self.passes}

    def load_state_dict(self, state):
        self.begin, self.passes = state["next"], state["passes"]


class BeginningAnew(CountingPasses):
    """Stream whose state after the last sample means that a new pass begins."""

    def __iter__(self):
        yield from super().__iter__()
        self.next = 0


class CountingLate(CountingPasses):
    """Stream that notices the end of a pass only when the next one begins."""

    def __iter__(self):
        if self.next >= self.count:
            self.next, self.passes = 0, self.passes + 1
        while self.next < self.count:
            self.next += 1
            yield drawn(), 1000 * self.passes + self.next

    def load_state_dict(self, state):
        self.next, self.passes = state["next"], state["passes"]


class Shuffling(CountingPasses):
    """Stream that shuffles with its own generator, and saves the generator's state from before the pass."""

    def __init__(self, count=23):
        super().__init__(count)
        self.shuffle = random.Random(5)

    def __iter__(self):
        self.before = self.shuffle.getstate()
        order = self.shuffle.sample(range(self.count), self.count)
        for noise, index in super().__iter__():
            yield noise, index - self.next + order[self.next - 1]

    def state_dict(self):
        return super().state_dict() | {"before": self.before}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.shuffle.setstate(state["before"])


def interrupted(data, at, workers, until=14):
    """Return the steps up to `at` of one process, then those of another that restored the state from JSON."""
    first, second, notes = batches(data(), workers=workers), None, []
    steps = first.steps(0, until)
    before = [next(steps) for _ in range(at)]
    state = json.loads(json.dumps(first.state()))
    first.close()
    again = data()
    second = batches(again, workers=workers, note=notes.append)
    second.restore(state)
    after = list(second.steps(at, until))
    second.close()
    return rows(before) + rows(after), notes, again


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("data", [Flow, Keeping, OfIterators, Counted])
@pytest.mark.parametrize("at", [1, 3, 4, 5, 9, 12])
def test_a_stream_goes_on_where_it_was(data, workers, at):
    assert interrupted(data, at, workers)[0] == rows(batches(data()).steps(0, 14))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("data", [CountingPasses, BeginningAnew, CountingLate, Shuffling])
@pytest.mark.parametrize("at", [3, 4, 8, 9])
def test_what_a_stream_remembers_over_passes_outlasts_a_fault_at_the_end_of_one(data, at, workers):
    whole = rows(batches(data()).steps(0, 14))
    assert len({row[-1] // 1000 for row in whole}) == 4
    assert interrupted(data, at, workers)[:2] == (whole, [])


@pytest.mark.parametrize("data", [CountingPasses, BeginningAnew, CountingLate, Shuffling])
@pytest.mark.parametrize(("count", "at"), [(5, 1), (5, 4), (6, 3), (24, 4), (24, 8)])
def test_and_so_it_does_where_a_pass_is_one_batch_or_all_batches_are_whole(data, count, at):
    assert interrupted(lambda: data(count), at, 0)[0] == rows(batches(data(count)).steps(0, 14))


def test_a_stream_that_is_resumed_at_the_end_of_a_pass_reads_two_batches_again_at_most():
    _, notes, again = interrupted(CountingPasses, 4, 0)
    assert notes == []
    assert again.reads == 5 + 23 + 23 + 18  # the last batch of the first pass, two passes, two batches and one ahead


def test_a_stream_that_is_not_interrupted_is_never_put_back():
    class Untouched(CountingPasses):
        def load_state_dict(self, state):
            raise AssertionError("nobody asked for it")

    assert rows(batches(Untouched()).steps(0, 9)) == rows(batches(CountingPasses()).steps(0, 9))


def test_a_stream_that_keeps_its_place_is_not_read_again():
    _, notes, again = interrupted(Keeping, 7, 0)
    assert notes == []
    # What was left of the second epoch, the third, two batches of the fourth and the one that is read ahead.
    assert again.reads == 5 + 23 + 18
    assert interrupted(Flow, 7, 0)[2].reads == 23 + 23 + 18


def test_of_a_stream_that_must_be_read_again_the_cost_is_told():
    _, notes, _ = interrupted(Flow, 7, 0)
    assert [note.split(" in ")[0] for note in notes] == ["18 samples of the stream were read again"]
    assert "state_dict" in notes[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_without_a_saved_place_the_steps_before_are_read_and_left_out(workers):
    notes = []
    data = batches(Flow(), workers=workers, note=notes.append)
    assert rows(data.steps(6, 14)) == rows(list(batches(Flow()).steps(0, 14))[6:])
    data.close()
    assert notes[0].startswith("35 samples")


@pytest.mark.parametrize("workers", [0, 1])
def test_the_length_of_a_stream_is_known_when_it_says_so_or_after_one_pass(workers):
    data = batches(Flow(), workers=workers)
    known = [(data.per_epoch, data.samples_per_epoch, step[0].epoch, step[0].last) for step in data.steps(0, 6)]
    data.close()
    unknown = (None, None)
    assert known == [(*unknown, 0, False)] * 3 + [(4, 23, 0, True)] + [(4, 23, 1, False)] * 2
    assert (batches(Counted()).per_epoch, batches(Counted()).samples_per_epoch) == (4, 23)


@pytest.mark.parametrize(("count", "totals"), [(23, [6, 6, 6]), (24, [6, 6, 6, 6]), (5, [5])])
def test_a_small_batch_at_the_end_may_be_dropped(count, totals):
    data = batches(DataLoader(Flow(count), batch_size=6, drop_last=True))
    steps = list(data.steps(0, 2 * len(totals)))
    assert [step[0].total for step in steps] == 2 * totals
    assert [step[0].last for step in steps] == 2 * ([False] * (len(totals) - 1) + [True])
    assert data.per_epoch == len(totals)


def test_an_epoch_ends_where_the_stream_ends_this_time():
    class Growing(Flow):
        def __iter__(self):
            self.count = 10 + 5 * self.epoch
            return super().__iter__()

    steps = list(batches(Growing()).steps(0, 9))
    assert [(step[0].epoch, step[0].total, step[0].last) for step in steps] == [
        (0, 6, False), (0, 4, True),
        (1, 6, False), (1, 6, False), (1, 3, True),
        (2, 6, False), (2, 6, False), (2, 6, False), (2, 2, True),
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
def test_validation_reads_a_stream_once_the_same_every_time(workers):
    data = batches(Flow(), workers=workers)
    once = rows(data.in_order())
    assert [row[-1] for row in once] == list(range(23))
    assert rows(data.in_order()) == once
    assert data.per_epoch == 4
    data.close()


def test_a_generator_serves_for_one_pass():
    def generated():
        return (each for each in range(10))

    assert [step[0].data.tolist() for step in batches(generated()).steps(0, 2)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    data = batches(generated())
    with pytest.raises(InvalidDefinition, match=r"no sample in pass 2.*whose __iter__ begins anew"):
        list(data.steps(0, 3))
    data = batches(generated())
    assert len(list(data.in_order())) == 2
    with pytest.raises(InvalidDefinition, match="can be read only once"):
        list(data.in_order())


def test_a_stream_without_samples_is_no_data():
    with pytest.raises(InvalidDefinition, match=r"the Flow of train_data\(\) gave no sample in pass 1"):
        next(batches(Flow(0)).steps(0, None))


def test_a_stream_that_has_become_shorter_is_no_longer_the_same_data():
    data = batches(Flow(23))
    steps = data.steps(0, None)
    for _ in range(3):
        next(steps)
    shorter = batches(Flow(7))
    shorter.restore(data.state())
    with pytest.raises(InvalidDefinition, match="ended after 7 samples, where it had given 18 before"):
        next(shorter.steps(3, None))


def test_a_state_that_no_checkpoint_can_hold_is_told_with_its_place():
    class Odd(Keeping):
        def state_dict(self):
            return {"lock": object()}

    data = batches(Odd())
    next(data.steps(0, None))
    with pytest.raises(DaylightError, match=r"the value at dataset\.lock is an object of class object"):
        data.state()
