"""Test that a training whose checkpoints cannot be written or read pauses instead of failing, and resumes later."""

from __future__ import annotations

import contextlib
import io

import pytest

from jupyter_ext.job.outcome import raise_if_failed
from kernel_backend.cli.follow import wait
from kernel_backend.commands.answer import FAILED
from kernel_backend.errors import ExperimentFailed
from kernel_backend.model.trial import checkpoint_step
from tests.support.world import DEFINITION, until

pytestmark = pytest.mark.distributed

# From its tenth batch on a rank can write no file of more than 64 kB, as on a full disk, until there is room. By then
# its first checkpoint is there.
FULL = (
    DEFINITION
    + """
import os, resource, sys
seen = []
first = "checkpoints/" + os.path.basename(sys.argv[1]).partition(".")[0] + "/1/4-1/manifest.json"
def loss(output, target, pause=0.0, room=""):
    time.sleep(pause)
    seen.append(1)
    if len(seen) == 10 and not os.path.exists(room):
        while not os.path.exists(first):
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
    return nn.functional.mse_loss(output, target)
"""
)
OPTIONS = {"slots": 1, "epochs": 2, "checkpoint_every": {"steps": 4}, "max_restarts": 0, "width": 4000}  # of 8 steps


def test_it_is_paused_with_a_word_on_what_to_do_and_resumed_to_the_same_bits(world):
    submitted = world.submit(FULL, **OPTIONS, room="room")
    number, client, said = submitted.experiment.number, world.serve(), io.StringIO()
    with contextlib.redirect_stderr(said):
        paused, code = wait(client, submitted, io.StringIO())  # which does not wait for ever
    assert code == FAILED
    assert said.getvalue().startswith(
        f"#{number} is paused: the last checkpoint, at step 16, could not be written to /"
    )
    assert said.getvalue().endswith(f"Make room; then: daylight resume {number}\n")
    with pytest.raises(ExperimentFailed, match=f"experiment #{number} is paused: .* Make room; then: %dl resume"):
        raise_if_failed(paused)
    (trial,), (attempt,) = paused.trials, paused.attempts
    assert (paused.experiment.state, trial.attempt, trial.failure.type) == ("paused", 1, "CheckpointFailed")
    assert (attempt.outcome, attempt.failure.type) == ("failed", "CheckpointFailed")
    note = paused.warnings[-1]
    assert note.startswith("paused: the last checkpoint, at step 16, could not be written")
    assert note.endswith(f"Make room, then resume #{number}")
    saved = checkpoint_step(trial.checkpoint)
    assert 4 <= saved < 10

    (world.home / "room").touch()
    client.resume(number)
    overview = world.ended(number)
    (trial,) = overview.trials
    assert (overview.state, trial.attempt, trial.failures, trial.failure) == ("completed", 2, 0, None)
    assert checkpoint_step(overview.attempts[-1].resume_from) == saved

    quiet = world.submit(FULL, **OPTIONS, room="room").experiment.number
    assert world.ended(quiet).state == "completed"
    assert world.weights(number) == world.weights(quiet)


def test_a_trial_whose_checkpoints_cannot_be_reached_says_so_and_starts_when_they_can(world):
    number = world.lasting(slots=1, epochs=4, checkpoint_every={"steps": 4})
    world.reached(number, 5)
    client = world.serve()
    client.pause(number)
    until(lambda: world.overview(number).trials[0].state == "paused", "its gang has left")
    place = world.home / "checkpoints" / str(number)
    aside = place.rename(place.with_name("elsewhere"))
    place.symlink_to(place)
    client.resume(number)
    waits = until(
        lambda: (o := world.overview(number)).wait and "tried again" in o.wait.reason and o.wait, "it says why"
    )
    assert waits.reason.startswith(
        "cannot be started just now, and is tried again: Too many levels of symbolic links (/"
    )
    world.hurry(number)
    whole = place.with_name("whole")
    whole.symlink_to(aside)
    whole.rename(place)  # at no instant is there none
    assert world.ended(number).state == "completed"
