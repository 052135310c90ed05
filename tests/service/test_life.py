"""Test experiments from submission to end, with a real service, launcher and ranks."""

from __future__ import annotations

import threading

import pytest

from kernel_backend.client import Client
from kernel_backend.errors import Conflict, ImpossibleAsk, InvalidDefinition, InvalidRequest, NotFound
from tests.support.world import DEFINITION, World, until

pytestmark = pytest.mark.distributed

FAILS_AT_STEP_7 = (
    DEFINITION
    + """
calls = []
def loss(output, target):
    calls.append(1)
    if len(calls) == 7:
        raise ValueError("no seventh step today")
    return nn.functional.mse_loss(output, target)
"""
)


@pytest.fixture(scope="module")
def plain(world: World) -> int:
    """Provide an undisturbed experiment, with which others are compared."""
    number = world.submit(epochs=4).experiment.number
    assert world.ended(number).state == "completed"
    return number


def test_an_experiment_trains_to_its_end_and_every_step_is_told_once(world, plain):
    overview = world.overview(plain)
    trial = overview.trials[0]
    assert (trial.step, trial.total_steps, trial.epoch, trial.attempt) == (32, 32, 4.0, 1)
    assert overview.attempts[-1].backend == "horovod"
    training = [report.step for report in world.reports(plain) if report.kind == "training"]
    assert training == sorted(set(training))
    validation = [(r.step, set(r.metrics)) for r in world.reports(plain) if r.kind == "validation"]
    assert validation == [(step, {"loss", "error"}) for step in (8, 16, 24, 32)]


def test_both_backends_give_the_same_bits(world, plain):
    number = world.submit(epochs=4, backend="torch").experiment.number
    assert world.ended(number).attempts[-1].backend == "torch"
    assert world.weights(number) == world.weights(plain)


def test_a_paused_experiment_gives_its_slots_back_and_resumes_with_the_same_bits(world, plain):
    client = world.serve()
    number = world.lasting(epochs=4)
    world.reached(number, 4)
    assert client.pause(number).experiment.state == "paused"
    until(lambda: world.overview(number).trials[0].state == "paused", "the trial pauses")
    until(lambda: client.nodes()[0].used == 0, "its slots are free")
    world.hurry(number)
    assert client.resume(number).experiment.state == "active"
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 2, 0)
    assert overview.attempts[-1].resume_from is not None
    assert world.weights(number) == world.weights(plain)


def test_a_stopped_experiment_ends_and_keeps_its_checkpoint(world):
    client = world.serve()
    number = world.submit(epochs=1000, pause=0.02).experiment.number
    world.reached(number, 4)
    client.stop(number)
    assert world.ended(number).trials[0].state == "stopped"
    assert world.ranks() == {}
    assert client.checkpoints(number)
    with pytest.raises(Conflict, match="is stopped: there is nothing to pause"):
        client.pause(number)
    assert client.stop(number).state == "stopped"


def test_a_queued_experiment_says_why_it_waits_and_can_be_stopped(world):
    client = world.serve()
    first = world.submit(epochs=1000, pause=0.02).experiment.number
    world.state(first, "running")
    second = world.submit(epochs=1)
    assert second.state == "queued"
    wait = client.experiment(second.experiment.number).wait
    assert wait is not None
    assert (wait.place, wait.reason) == (1, "next in queue; 2 slots requested, 0 of 2 free")
    client.stop(second.experiment.number)
    client.stop(first)
    assert world.ended(second.experiment.number).state == "stopped"
    assert world.overview(second.experiment.number).trials[0].attempt == 0
    world.ended(first)


def test_an_error_of_the_user_is_shown_by_cell_and_line_and_ends_it_at_once(world):
    number = world.submit(FAILS_AT_STEP_7, slots=1).experiment.number
    overview = world.ended(number)
    trial = overview.trials[0]
    assert (overview.state, trial.state, trial.attempt) == ("failed", "failed", 1)
    failure = trial.failure
    assert failure is not None
    assert (failure.type, failure.message, failure.step) == ("ValueError", "no seventh step today", 7)
    line = FAILS_AT_STEP_7.strip().splitlines().index('        raise ValueError("no seventh step today")') + 1
    assert failure.frames[-1].where == f"cell [4] line {line + 1}"
    assert all("kernel_backend" not in frame.file for frame in failure.frames)
    assert "no seventh step today" in world.serve().logs(number).text


def test_two_who_submit_at_once_get_two_experiments(world):
    found = []
    threads = [threading.Thread(target=lambda: found.append(world.submit(slots=1, epochs=1))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = {overview.experiment.number for overview in found}
    assert len(numbers) == 2
    assert {world.ended(number).state for number in numbers} == {"completed"}


@pytest.mark.parametrize(
    ("source", "options", "error", "says"),
    [
        (DEFINITION, {"slots": 24}, ImpossibleAsk, "The most for one trial there: 2"),
        (DEFINITION, {"lrr": 0.1}, InvalidDefinition, "lr"),
        ("def train_data(): return []\n", {}, InvalidDefinition, "model"),
        ("def model(:\n", {}, InvalidDefinition, "line 1"),
        (DEFINITION + "\ndef schedule(optimizer, lr=5e-1): ...\n", {}, InvalidDefinition, "lr"),
    ],
)
def test_what_can_never_run_is_refused_and_nothing_is_stored(world, source, options, error, says):
    client = world.serve()
    before = {overview.experiment.number for overview in client.experiments(limit=1000)}
    with pytest.raises(error, match=says):
        world.submit(source, **options)
    assert {overview.experiment.number for overview in client.experiments(limit=1000)} == before


def test_an_unknown_snapshot_and_an_unknown_number_are_named(world):
    client = world.serve()
    with pytest.raises(NotFound, match="999"):
        client.experiment(999)
    with pytest.raises(InvalidRequest):
        client.upload_snapshot("0" * 64, b"not a zip")


def test_a_stream_tells_everything_once_and_in_order(world, plain):
    seen = []
    for message in Client.connect(start=False, home=world.home).watch(after=0, experiment=plain):
        seen.append(message)
        if message.type == "experiment" and message.data["state"] == "completed":
            break
    assert [m.seq for m in seen] == sorted({m.seq for m in seen})
    assert next(m.data["state"] for m in seen if m.type == "trial") == "queued"
    assert sum(m.type == "report" for m in seen) == len(world.reports(plain))
