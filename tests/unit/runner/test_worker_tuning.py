"""Loader processes are tuned by measured times, within cores and memory, and change no bit of the data."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from kernel_backend.model.facts import LoaderSetting
from kernel_backend.model.launch import times as file
from kernel_backend.runner.data import source
from kernel_backend.runner.data.auto_workers import AutoWorkers, open_file_in
from kernel_backend.runner.data.tuning import ENOUGH, Choice, Limits, Measured, choose, told
from kernel_backend.runner.timing.clock import CLOCK
from tests.support.samples import Noisy, batches, loader_workers, rows

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
AMPLE = Limits(cores=64, processes=64)


def measured(
    workers: int, work: float, load: float, cpu: float = 0.0, prefetch: int = 2, jitter: float = 0.0
) -> Measured:
    """Return measurements for steps that compute for `work` ms, with batches that take one process `load` ms."""
    step = work + load if workers == 0 else max(work, load / workers) + jitter
    setting = LoaderSetting(workers=workers, prefetch=prefetch)
    return Measured(setting, step / 1000, (step - work) / 1000, load / 1000, cpu / 1000)


def tuned(limits: Limits = AMPLE, begin: int = 0, **costs: float) -> tuple[list[Measured], Choice]:
    """Tune a loader with these costs until its setting is final."""
    tried = [measured(begin, **costs)]
    while not (choice := choose(tried, limits)).settled:
        assert choice.setting not in [each.setting for each in tried]
        tried.append(measured(choice.setting.workers, prefetch=choice.setting.prefetch, **costs))
    return tried, choice


def test_a_loader_that_sleeps_gets_as_many_processes_as_hide_it() -> None:
    tried, choice = tuned(work=30, load=160, cpu=1)
    assert [each.setting.workers for each in tried] == [0, 4, 7]
    assert told(tried, choice) == "tuned: 7 loader workers (waiting 84 % -> 0 %)"


def test_what_hardly_waits_is_left_alone() -> None:
    tried, choice = tuned(work=100, load=8)
    assert choice == Choice(tried[0].setting, True)


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_a_loader_that_computes_gets_no_more_processes_than_cores(cores: int) -> None:
    tried, choice = tuned(Limits(cores, 64), work=10, load=400, cpu=400)
    assert choice.setting.workers <= cores
    assert told(tried, choice).endswith("no more") or choice.setting.workers == 0


def test_memory_limits_processes() -> None:
    tried, choice = tuned(Limits(64, 0), begin=2, work=10, load=200)
    assert told(tried, choice) == "tuned: 2 loader workers as before (waiting 90 %); the memory allows no more"


def test_what_brings_nothing_is_taken_back() -> None:
    tried = [measured(2, 10, 100), measured(4, 10, 200)]  # twice the processes, of which each takes twice as long
    choice = choose(tried, AMPLE)
    assert choice == Choice(tried[0].setting, True, "another setting is not faster")
    assert told(tried, choice) == "tuned: 2 loader workers as before (waiting 80 %); another setting is not faster"


def test_a_setting_with_shorter_steps_that_wait_longer_is_told_by_its_steps() -> None:
    before, after = (LoaderSetting(workers=workers, prefetch=2) for workers in (0, 1))
    tried = [Measured(before, 0.1, 0.011, 0.01, 0.0), Measured(after, 0.08, 0.024, 0.01, 0.0)]
    assert told(tried, Choice(after, True)) == "tuned: 1 loader worker (steps 20 % shorter)"


def test_slow_batches_among_fast_ones_get_a_longer_queue() -> None:
    tried = [measured(4, 10, 20, jitter=5)]
    choice = choose(tried, AMPLE)
    assert choice.setting == LoaderSetting(workers=4, prefetch=4)
    tried.append(measured(4, 10, 20, prefetch=4, jitter=0.2))
    assert told(tried, choose(tried, AMPLE)) == (
        "tuned: 4 loader workers, 4 batches ahead of each (waiting 33 % -> 2 %)"
    )


@pytest.mark.parametrize("work", [0.0, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("load", [0.0, 1.0, 160.0, 5000.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("begin", [0, 1, 2, 16])
def test_tuning_ends_within_its_limits(work: float, load: float, share: float, begin: int) -> None:
    limits = Limits(cores=4, processes=5)
    tried, choice = tuned(limits, begin, work=work, load=load, cpu=share * load)
    assert choice.setting.workers <= max(16, begin)
    assert len(tried) <= 8
    last = next(each for each in tried if each.setting == choice.setting)
    assert last.waiting <= ENOUGH or choice.reason


class Slow(Noisy):
    """Dataset with slow samples, which records the process that reads them."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.004)
        return super().__getitem__(index)


class Refusing(Noisy):
    """Dataset that loader processes cannot read, like one on a GPU."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if multiprocessing.parent_process() is not None:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        time.sleep(0.004)
        return super().__getitem__(index)


class Says:
    """Record of the notes and provenance records of a tuned loader."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.chosen: list[LoaderSetting] = []

    def auto(self, begin: LoaderSetting | None = None) -> AutoWorkers:
        return AutoWorkers(begin, 64, 1, 30.0, self.notes.append, self.chosen.append)


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch):
    """Start the clock of this process, with short windows."""
    monkeypatch.setattr("kernel_backend.runner.data.auto_workers.LEAST_S", 0.1)
    CLOCK.attach(memoryview(bytearray(file.SIZE)))
    CLOCK.phase("step", 1)
    yield
    CLOCK.detach()


def trained(steps) -> list[list[int]]:
    """Return the samples of these steps, each of which computes for 8 ms."""
    found = []
    for number, step in enumerate(steps):
        CLOCK.phase("step", number + 2)
        time.sleep(0.008)
        found += rows([step])
    return found


@pytest.mark.parametrize("length", [None, 4])
def test_workers_are_added_while_training_goes_on_and_change_no_bit(data, clocked, length: int | None) -> None:
    """The number grows within a pass, from none (no `num_workers`), and between passes from a DataLoader's number."""
    says = Says()
    loading = data(Slow() if length else DataLoader(Slow(), batch_size=6), workers=says.auto())
    found, taken, numbers = [], 0, set()
    while not says.notes:
        for step in loading.steps(taken, None if length is None else taken + length):
            found += trained([step])
            taken += 1
            numbers.add(len(loader_workers()))
            if says.notes:
                break
    assert found == rows(batches(Noisy()).steps(0, taken))
    assert len(numbers) > 1
    assert says.notes[0].startswith("tuned: ")
    assert rows(loading.in_order()) == rows(batches(Noisy()).in_order())


def test_a_loader_begins_with_what_was_found_before(data, clocked) -> None:
    loading = data(Slow(), workers=Says().auto(LoaderSetting(workers=3)))
    steps = loading.steps(0, 8)
    next(steps)
    assert len(loader_workers()) == 3


def test_processes_that_cannot_load_are_given_up_without_a_lost_batch(data, clocked) -> None:
    says = Says()
    loading = data(DataLoader(Refusing(), batch_size=6), workers=says.auto())
    assert trained(loading.steps(0, 40)) == rows(batches(Noisy()).steps(0, 40))
    assert says.notes == [
        "tuned: back to 0 loader workers, as with 4 there was RuntimeError: "
        "Cannot re-initialize CUDA in forked subprocess"
    ]
    assert says.chosen == []


def test_an_iteration_may_be_left_while_it_changes(data, clocked) -> None:
    loading = data(DataLoader(Slow(), batch_size=6), workers=Says().auto())
    steps = loading.steps(0, None)
    while not loader_workers():
        trained([next(steps)])
    steps.close()
    assert rows(loading.steps(2, 9)) == rows(batches(Noisy()).steps(2, 9))


def test_data_with_an_open_file_is_read_by_no_second_process(data, clocked, tmp_path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(os.urandom(23))

    class OfFile(Slow):
        def __init__(self) -> None:
            super().__init__()
            self.file = path.open("rb")

    says = Says()
    dataset = OfFile()
    loading = data(DataLoader(dataset, batch_size=6), workers=says.auto())
    trained(loading.steps(0, 40))
    dataset.file.close()
    assert says.notes[0].endswith("; train_data.file is an open BufferedReader, which several processes would share")
    assert open_file_in(source(TensorDataset(torch.zeros(3)), "train_data")) is None
