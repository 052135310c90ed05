"""Test that the digest of the first epoch's samples is equal for any number of ranks and after any kill."""

from __future__ import annotations

import pytest
from gang import STAND, Attempt, Trial

from kernel_backend.definition.code import code_id
from kernel_backend.model.facts import Delivered
from kernel_backend.model.reports import Fact

pytestmark = pytest.mark.distributed

AUGMENTED = f"""
import time
import torch
from torch import nn
{STAND}
class Photos(torch.utils.data.Dataset):
    def __len__(self): return 45
    def __getitem__(self, index): return torch.randn(6) + index, index % 3

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return (Photos()[index] for index in range(45))

def train_data(stream=False): return Stream() if stream else Photos()
def model(): return nn.Linear(6, 3)
def loss(output, target, pause=0.0):
    time.sleep(pause)
    stand()
    return nn.functional.cross_entropy(output, target)
"""


def delivered(*attempts: Attempt) -> list[Delivered]:
    facts = [each for attempt in attempts for each in attempt.records if isinstance(each, Fact)]
    return [Delivered.model_validate(fact.value) for fact in facts if fact.name == "delivered"]


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory) -> Delivered:
    ran = Trial(tmp_path_factory.mktemp("one") / "trial", source=AUGMENTED, slots=1).run()
    (found,) = delivered(ran)
    return found


def test_it_is_said_once_with_what_it_follows_from(one_slot):
    assert (one_slot.samples, one_slot.seed, one_slot.whole, one_slot.uncovered) == (45, 0, True, 0)
    assert one_slot.code == code_id({"definition.py": AUGMENTED.encode()})


@pytest.mark.parametrize(
    ("slots", "backend", "batch_size", "options"),
    [
        (2, "torch", 12, {}),
        (3, "horovod", 7, {"loader_workers": 1}),
        (2, "torch", 45, {"loader_workers": 0, "rng": "stream"}),
        (2, "horovod", 6, {"logical_workers": 4}),
    ],
)
def test_it_is_the_same_at_any_number_of_slots_and_batch_size(trial, one_slot, slots, backend, batch_size, options):
    ran = trial(source=AUGMENTED, slots=slots, backend=backend, batch_size=batch_size, options=options).run()
    assert delivered(ran) == [one_slot], ran.logs()


def test_another_seed_draws_other_samples(trial, one_slot):
    (other,) = delivered(trial(source=AUGMENTED, slots=1, options={"seed": 1}).run())
    assert other.digest != one_slot.digest
    assert other.samples == one_slot.samples


@pytest.mark.parametrize(("slots", "stream"), [(1, False), (2, False), (2, True)])
def test_killed_within_the_first_epoch_it_goes_on_with_its_sum(trial, one_slot, slots, stream):
    params = {"pause": 0.1, "stream": stream}
    run = trial(source=AUGMENTED, slots=slots, batch_size=5, every="2steps", params=params)
    first = run.start(hold=7)
    first.wait(lambda: first.pids() and first.committed())
    first.kill(slots - 1)
    pinned = run.pinned()
    assert pinned is not None
    assert int(pinned.split("-")[0]) < 9
    (found,) = delivered(first, run.run(pinned))
    assert found.samples == one_slot.samples
    assert stream or found == one_slot


def test_a_training_that_ends_within_its_first_epoch_says_so(trial):
    run = trial(source=AUGMENTED, slots=2, options={"steps": 2})
    (found,) = delivered(run.run())
    assert (found.samples, found.whole) == (24, False)


def test_nothing_is_said_again_after_the_first_epoch(trial):
    run = trial(source=AUGMENTED, slots=1, epochs=40, every="2steps", params={"pause": 0.02})
    first = run.start(hold=10).reaches(8)
    first.wait(lambda: first.committed() and int(first.committed()[-1].split("-")[0]) > 4)
    first.kill(0)
    second = run.start(run.pinned(), hold=6)
    second.wait(lambda: second.pids() and second.committed())
    second.kill(0)
    assert len(delivered(first)) == 1
    assert delivered(second) == []
