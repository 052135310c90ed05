"""Test that a gang which waits at its target gets the next target through its launcher in time."""

from __future__ import annotations

import time

import pytest

from kernel_backend.store.sql import SqlStore
from tests.support.builders import update_trial
from tests.support.world import LASTING, until

pytestmark = pytest.mark.distributed

# Ranks that wait for the test, too, which may be held up.
PATIENT = "import kernel_backend.runner.loop.target as target\ntarget.ANSWER_S = 60.0\n" + LASTING.lstrip()


def test_a_target_that_is_decided_on_while_the_ranks_wait_reaches_them_in_time(world):
    client = world.serve()
    whole = world.submit(epochs=4).experiment.number
    assert world.ended(whole).state == "completed"
    number = world.lasting(PATIENT, epochs=4, backend="torch")
    world.reached(number, 4)
    client.pause(number)
    until(lambda: world.overview(number).trials[0].state == "paused", "the trial pauses")
    world.hurry(number)
    store = SqlStore(world.home / "daylight.db")
    update_trial(store, number, 1, at=time.time(), until=3)
    client.resume(number)
    until(lambda: world.overview(number).trials[0].checkpoint == "24-2", "it commits at its target")
    update_trial(store, number, 1, at=time.time(), until=4)
    store.close()
    ended = world.ended(number)
    assert (ended.state, ended.trials[0].attempt, ended.trials[0].until) == ("completed", 2, 4)
    assert world.weights(number) == world.weights(whole)


def test_nobody_is_asked_to_step_aside_who_leaves_because_nobody_answered(world):
    client = world.serve()
    number = world.lasting(epochs=4, backend="torch")
    world.reached(number, 4)
    client.pause(number)
    until(lambda: world.overview(number).trials[0].state == "paused", "the trial pauses")
    store = SqlStore(world.home / "daylight.db")
    update_trial(store, number, 1, at=time.time(), until=3)
    world.hurry(number)
    client.resume(number)
    until(lambda: world.overview(number).trials[0].attempt == 3, "it leaves and comes back")
    update_trial(store, number, 1, at=time.time(), until=4)
    store.close()
    ended = world.ended(number)
    assert (ended.state, ended.trials[0].failures) == ("completed", 0)
    assert [attempt.outcome for attempt in ended.attempts][:2] == ["released", "released"]
    assert not [text for text in ended.warnings if "by a signal" in text]
