"""Test that a snapshot gives the same bits on both backends, in every run, and after SIGKILL at any step."""

from __future__ import annotations

import random

import pytest

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("slots", [2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_both_backends_give_the_same_bits(whole, slots):
    horovod, torch = whole("horovod", slots), whole("torch", slots)
    assert horovod.attempt.started.backend == "horovod"
    assert torch.attempt.started.backend == "torch"
    assert horovod.trial.parts() == torch.trial.parts()
    assert horovod.attempt.reports("validation") == torch.attempt.reports("validation")
    assert horovod.attempt.reports("training") == torch.attempt.reports("training")


def test_two_runs_of_three_ranks_give_the_same_bits(whole, trial):
    again = trial(slots=3, backend="horovod")
    assert again.run().codes == [0, 0, 0]
    assert again.parts() == whole("horovod", 3).trial.parts()


@pytest.mark.parametrize(("backend", "slots"), [("horovod", 2), ("torch", 2), ("horovod", 3)])
def test_a_training_killed_at_a_random_step_ends_with_the_same_bits(whole, trial, backend, slots):
    """The model has BatchNorm, dropout and AdamW; the kill comes at any time in a step or a checkpoint."""
    uninterrupted = whole(backend, slots)
    killed = trial(slots=slots, backend=backend, every="2steps", params={"pause": 0.03})
    victim = random.randrange(slots)
    first = killed.start(hold=11).reaches(random.randint(3, 9)).kill(victim)
    assert first.codes[victim] == -9
    survivors = [failure for rank, failure in first.failures().items() if rank != victim]
    assert all(failure.consequence for failure in survivors), survivors
    pinned = killed.pinned()
    second = killed.run(resume_from=pinned)
    assert second.codes == [0] * slots, second.logs()
    assert second.started.resumed_from == pinned
    assert killed.parts() == uninterrupted.trial.parts()
    assert second.reports("validation")[12] == uninterrupted.attempt.reports("validation")[12]
    curve = uninterrupted.attempt.reports("training")
    assert {**first.reports("training"), **second.reports("training")} == curve


def test_a_started_record_tells_what_will_run(whole):
    started = whole("horovod", 2).attempt.started
    assert (started.world, started.steps_per_epoch, started.total_steps) == (2, 6, 12)
    assert started.parameters == 506
    assert started.runtime["threads"] == "1"


def test_checkpoints_are_told_of_as_they_are_committed(whole):
    assert whole("torch", 2).attempt.committed() == ["6-1", "12-1"]
    assert whole("torch", 2).trial.newest().epoch == 2.0
