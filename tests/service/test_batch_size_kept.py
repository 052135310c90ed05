"""Test that restarts and reruns keep a batch size that was found, without trying sizes again."""

from __future__ import annotations

import pytest

from kernel_backend.client import Client
from kernel_backend.home import attempt_folder
from kernel_backend.model.diff import Rerun
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.views.overview import Overview
from tests.support.world import World

OPTIONS = {"slots": 1, "epochs": 4, "checkpoint_every": {"steps": 4}}
BATCH = BatchSize(size=8, reason="at most 8, as requested")


def tried(world: World, overview: Overview) -> list[bool]:
    """Return for each attempt, oldest first, whether it has tried batch sizes."""
    folders = (attempt_folder(world.home, attempt.id) for attempt in overview.attempts)
    return [(folder / "batch-size-0.log").exists() for folder in folders]


@pytest.mark.long
def test_a_killed_training_and_a_rerun_keep_the_size_that_was_found(world: World) -> None:
    client = Client.connect(start=False, home=world.home)
    number = world.lasting(auto_batch={"most": 8}, **OPTIONS)
    world.checkpointed(number)
    world.ranks()[0].kill()
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt) == ("completed", 2)
    assert overview.attempts[-1].resume_from is not None
    assert tried(world, overview) == [True, False]
    assert overview.found_batch_size == 8
    assert [each for each in overview.warnings if each.startswith("tuned: batch")] == [f"tuned: {BATCH.text(False)}"]
    found = [each for each in client.facts(number) if each.name == "batch"]
    assert [(each.attempt, BatchSize.model_validate(each.value)) for each in found] == [(1, BATCH), (2, BATCH)]

    again = world.ended(client.rerun(number).experiment.number)
    assert (again.state, tried(world, again), again.found_batch_size) == ("completed", [False], 8)
    fixed = world.submit(**OPTIONS).experiment.number
    assert world.ended(fixed).state == "completed"
    assert world.weights(number) == world.weights(again.experiment.number) == world.weights(fixed)
    differences = client.diff(number, fixed).differences
    assert not [each.text for each in differences if each.kind == "configuration" and not each.harmless]


@pytest.mark.long
def test_each_trial_of_a_search_finds_its_size_and_a_longer_training_keeps_the_size(world: World) -> None:
    client = Client.connect(start=False, home=world.home)
    options = {"slots": 1, "epochs": 1, "auto_batch": {"most": 8}}
    search = world.ended(world.submit(space="lr=0.01,0.02", search={"method": "grid"}, **options).experiment.number)
    assert (search.state, len(search.trials), search.found_batch_size) == ("completed", 2, None)
    assert tried(world, search) == [True, True]
    sizes = [
        BatchSize.model_validate(each.value)
        for trial in (1, 2)
        for each in client.facts(search.experiment.number, trial)
        if each.name == "batch"
    ]
    assert sizes == [BATCH, BATCH]

    number = world.submit(**options).experiment.number
    assert world.ended(number).state == "completed"
    asked = Rerun(checkpoint="newest", config={"epochs": 2})
    longer = world.ended(client.rerun(number, asked).experiment.number)
    assert (longer.state, longer.trials[0].epoch, longer.found_batch_size) == ("completed", 2.0, 8)
    assert tried(world, longer) == [False]
