"""Test evaluations that follow a training: each checkpoint is measured once, and its values are validations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from tests.service.test_predictions import daylight
from tests.support.world import DEFINITION, World, until
from tests.torture.evaluations import SOURCE, outcome, tormented
from tests.torture.evaluations import followed as evaluated

pytestmark = pytest.mark.distributed
# It waits after the first of its epochs, of eight steps each, until the file `hurry` is there.
WAITING = (
    SOURCE.replace("import time", "import os, time\nSTEPS = []", 1)
    .replace("pause=0.0)", 'pause=0.0, hurry="")')
    .replace(
        "    time.sleep(pause)",
        "    STEPS.append(1)\n"
        "    while hurry and len(STEPS) > 8 and not os.path.exists(hurry): time.sleep(0.05)\n"
        "    time.sleep(pause)",
    )
)


def followed(world: World, number: int, *options: str) -> int:
    """Follow a training by an evaluation on its test data, and return the evaluation's number."""
    arguments = ("evaluate", str(number), "--follow", "--data", "test_data", "--batch-size", "8", "--json", *options)
    return int(json.loads(daylight(world, world.home, *arguments))["evaluations"][0]["experiment"]["number"])


def test_a_training_gets_the_values_of_its_checkpoints_as_its_own_validations(world: World) -> None:
    options = {"contract": CONTRACT, "slots": 1, "epochs": 4, "checkpoint_every": {"steps": 4}}
    own = world.submit(DEFINITION, **options).experiment.number
    number = world.lasting(WAITING, pause=0.0, await_evaluation=True, **options)
    missing = f"no evaluation follows it yet: daylight evaluate {number} --follow --data DATA"
    assert missing in daylight(world, world.home, "show", str(number))
    evaluation = followed(world, number)
    assert f"its validations come from #{evaluation}" in daylight(world, world.home, "show", str(number))
    client = Client.connect(start=False, home=world.home)
    until(lambda: world.overview(number).trials[0].metrics, "a checkpoint is measured while the training goes on")
    assert world.overview(number).state == "running"
    world.hurry(number)
    assert world.ended(number).state == "completed"
    assert world.ended(evaluation).state == "completed", daylight(world, world.home, "show", str(evaluation))
    validations = [each for each in world.reports(number) if each.kind == "validation"]
    assert sorted(each.step for each in validations) == list(range(4, 33, 4)), "each once, those that were deleted, too"
    wanted = {each.step: each.metrics for each in world.reports(own) if each.kind == "validation"}
    assert {each.step: each.metrics for each in validations if each.step in wanted} == wanted
    assert [each.epoch for each in validations] == [each.step / 8 for each in validations]
    best = world.overview(number).trials[0].best
    assert best == world.overview(own).trials[0].best
    assert best is not None
    (kept,) = [each for each in client.checkpoints(number) if "best" in each.kept]
    assert (kept.step, kept.metrics["loss"]) == (best.step, best.value)
    assert not [each for each in client.checkpoints(number) if "awaited" in each.kept]
    assert client.checkpoints(evaluation) == [], "the copies are gone"
    rows = client.trial_rows(evaluation, sort="trial")
    assert [row.params["checkpoint"] for row in rows] == [f"{number}.1@{step}" for step in range(4, 33, 4)]


def test_a_search_waits_for_the_values_at_its_rungs_and_decides_by_them(world: World) -> None:
    search = {"method": "asha", "trials": 3, "eta": 2, "first_rung": 1}
    options = {"contract": CONTRACT, "slots": 1, "epochs": 2, "search": search, "space": "lr=1e-4..1e-1:log"}
    number = world.submit(SOURCE, await_evaluation=True, **options).experiment.number
    client = Client.connect(start=False, home=world.home)
    until(lambda: [row.state for row in client.trial_rows(number)] == ["paused"] * 3, "all wait outside of their slots")
    evaluation = followed(world, number)
    assert world.ended(number).state == "completed"
    assert world.ended(evaluation).state == "completed", daylight(world, world.home, "show", str(evaluation))
    rows = client.trial_rows(number)
    assert len(rows) == 3
    reports = [each for row in rows for each in world.reports(number, row.trial) if each.kind == "validation"]
    assert {each.step for each in reports} == {8, 16}, "the rungs"
    assert all(row.attempts > 1 for row in rows if row.unit == 2)
    best = min((each for each in reports if each.step == 16), key=lambda each: each.metrics["loss"])
    assert (rows[0].best, rows[0].trial) == (best.metrics["loss"], best.trial)
    measured = [row.params["checkpoint"] for row in client.trial_rows(evaluation)]
    assert len(set(measured)) == len(measured)
    assert {f"{number}.{each.trial}@{each.step}" for each in reports} == set(measured)


def test_patience_goes_by_the_values_and_a_bad_judge_ends_the_evaluation(world: World, tmp_path: Path) -> None:
    options = {"contract": CONTRACT, "slots": 1, "checkpoint_every": {"steps": 2}, "await_evaluation": True}
    (tmp_path / "judge.py").write_text("def evaluate(model, batch): return {'loss': 1.0}\n")
    number = world.submit(SOURCE, pause=2.0, epochs=500, patience=2, **options).experiment.number
    evaluation = followed(world, number, "--with", str(tmp_path / "judge.py"))
    ended = world.ended(number)
    assert (ended.state, ended.trials[0].state) == ("completed", "pruned")
    stopped = "stopped early: 2 evaluations without a better loss; the best was 1 at step "
    assert stopped in daylight(world, tmp_path, "show", str(number))
    assert world.ended(evaluation).state == "completed"
    (tmp_path / "judge.py").write_text("def evaluate(model, batch): return {'loss': batch.nothing}\n")
    number = world.lasting(WAITING, pause=0.0, epochs=4, **options)
    evaluation = followed(world, number, "--with", str(tmp_path / "judge.py"))
    world.hurry(number)
    assert world.ended(number).state == "completed"
    assert world.ended(evaluation).state == "failed"
    checkpoints = Client.connect(start=False, home=world.home).checkpoints(number)
    assert not [each for each in checkpoints if "awaited" in each.kept]


def test_kills_lose_no_value_and_add_none(own_world: World) -> None:
    quiet = outcome(own_world, *evaluated(own_world, epochs=3, pause=0.0))
    found = tormented(own_world, epochs=3, pause=0.5, count=4, seed=1)
    assert found.kills == 4
    assert found.values.keys() & quiet.values.keys()
    assert {step: quiet.values.get(step, value) for step, value in found.values.items()} == found.values
    assert found.measured >= len(found.values)
