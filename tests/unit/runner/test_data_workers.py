"""Test that loader workers change no bit, pass on errors, and neither outlive their rank nor block it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from kernel_backend.errors import InvalidDefinition
from tests.support.samples import Flow, Noisy, batches, loader_workers, rows

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


OFTEN = [(1, 8), (2, 2), (4, 1)]  # workers, and batches ahead of each
OTHERS = [each for each in itertools.product((1, 2, 4), (1, 2, 8)) if each not in OFTEN]


@pytest.mark.parametrize(
    ("workers", "prefetch"), [*OFTEN, *(pytest.param(*each, marks=pytest.mark.long) for each in OTHERS)]
)
def test_no_number_of_workers_or_batches_ahead_changes_a_bit(data, workers, prefetch):
    ahead = data(DataLoader(Noisy(), batch_size=6, num_workers=workers, prefetch_factor=prefetch), workers=None)
    assert rows(ahead.steps(0, 14)) == rows(batches(Noisy()).steps(0, 14))
    assert rows(ahead.in_order()) == rows(batches(Noisy()).in_order())
    assert rows(ahead.in_order()) == rows(batches(Noisy()).in_order())
    assert rows(ahead.steps(5, 9)) == rows(batches(Noisy()).steps(5, 9))


def test_tensors_come_the_same_through_workers(data):
    tensors = TensorDataset(torch.randn(23, 4), torch.arange(23))
    here, ahead = (list(data(tensors, workers=workers).steps(0, 8)) for workers in (0, 2))
    assert all(torch.equal(one[0].data[0], other[0].data[0]) for one, other in zip(here, ahead, strict=True))


def test_workers_live_on_from_epoch_to_epoch(data):
    steps = data(Noisy(), workers=2).steps(0, None)
    living = itertools.islice((sorted(each.pid for each in loader_workers()) for _ in steps), 12)
    assert len(set(map(tuple, living))) == 1


def test_loading_draws_nothing_from_the_main_generators(data):
    state = torch.get_rng_state()
    list(data(Noisy(), workers=2).steps(0, 8))
    assert torch.equal(torch.get_rng_state(), state)


class Unhappy(Exception):
    """Exception that cannot be recreated from its pickled arguments."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


class Broken(Noisy):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def __getitem__(self, index):
        if index == 7:
            self.fail()
        return super().__getitem__(index)

    def fail(self):
        try:
            raise ValueError("before")
        except ValueError as cause:
            raise self.error from cause


@pytest.mark.parametrize("error", [KeyError("a"), Unhappy(1, 2), SystemExit(3)], ids=lambda error: type(error).__name__)
def test_an_error_in_a_worker_is_raised_here_with_the_users_own_lines(data, error):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - it is compared below
        list(data(Broken(error), workers=2).steps(0, 4))
    assert type(caught.value).__name__ == type(error).__name__
    assert str(caught.value) == str(error)
    told = traceback.extract_tb(caught.value.__traceback__)
    assert [line.line for line in told[-2:]] == ["self.fail()", "raise self.error from cause"]
    assert told[-1].filename == __file__
    assert repr(caught.value.__cause__) == "ValueError('before')"


def test_a_batch_that_cannot_travel_is_an_error_and_no_endless_wait(data):
    loader = DataLoader(Noisy(), batch_size=6, num_workers=1, collate_fn=lambda samples: lambda: samples)
    with pytest.raises(InvalidDefinition, match="--loader-workers 0"):
        list(data(loader, workers=None).steps(0, 4))


def test_a_worker_that_is_killed_fails_its_rank(data):
    steps = data(Noisy(), workers=2).steps(0, None)
    next(steps)
    loader_workers()[0].kill()
    with pytest.raises(RuntimeError, match=r"loader worker \d+ of train_data\(\) was killed by SIGKILL"):
        list(itertools.islice(steps, 10**6))


def test_a_worker_that_is_killed_while_its_rank_waits_for_it_fails_the_rank(data):
    class Suicidal(Noisy):
        def __getitem__(self, index):
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="was killed by SIGKILL"):
        next(data(Suicidal(), workers=2).steps(0, None))


def test_workers_leave_the_signals_of_an_engine_to_their_rank(data):
    found = data(Noisy(), workers=2)
    steps = found.steps(0, None)
    next(steps)
    for each in loader_workers():
        os.kill(each.pid, signal.SIGTERM)
        os.kill(each.pid, signal.SIGINT)
    for _ in range(20):
        next(steps)
    assert all(each.is_alive() for each in loader_workers())


def test_a_users_way_to_begin_a_worker_is_kept(data):
    def begin(number):
        os.environ["BEGUN"] = str(number)

    class Begun(Noisy):
        def __getitem__(self, index):
            return os.environ["BEGUN"]

    loader = DataLoader(Begun(), batch_size=6, num_workers=2, worker_init_fn=begin, collate_fn=set)
    found = [step[0].data for step in data(loader, workers=None).steps(0, 4)]
    assert set().union(*found) == {"0", "1"}


RANK = """
from tests.support.samples import Flow, Noisy, batches, loader_workers
steps = [batches(Noisy(), workers=2).steps(0, None), batches(Flow(), workers=1).steps(0, None)]
for each in steps:
    next(each)
print(*[each.pid for each in loader_workers()], flush=True)
"""


def rank(then):
    return subprocess.Popen(
        [sys.executable, "-c", RANK + then], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )


def test_workers_die_with_their_rank():
    process = rank("import time; time.sleep(60)")
    workers = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(workers) == 3
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_a_rank_that_ends_without_a_word_waits_for_no_worker():
    process = rank("")
    assert process.wait(timeout=60) == 0
    process.stdout.close()


def test_a_stream_has_one_worker_at_most(data):
    steps = data(Flow(), workers=4).steps(0, None)
    next(steps)
    assert len(loader_workers()) == 1


@pytest.mark.gpu
def test_for_a_gpu_batches_come_in_memory_that_it_can_read_by_itself(data):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found = list(data(Noisy(), workers=2, device="cuda").steps(0, 8))
    assert all(step[0].data[0].is_pinned() for step in found)
    assert rows(found) == rows(batches(Noisy()).steps(0, 8))
    of_the_device = data(TensorDataset(torch.arange(23, device="cuda")), device="cuda")
    assert {step[0].data[0].device.type for step in of_the_device.steps(0, 8)} == {"cuda"}
