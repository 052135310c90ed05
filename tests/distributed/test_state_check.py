"""Test that rank 0 compares the job's values with those of the notebook before the first step."""

from __future__ import annotations

import pytest
from gang import DIGITS

from kernel_backend.model.snapshot import Process
from kernel_backend.snapshots.state import state_of

pytestmark = pytest.mark.distributed

CELLS = """
import random, os, torch
cfg = {"lr": 0.3}
names = list({"a", "b", "c", "d", "e", "f", "g", "h"})
weights = torch.randn(3)
draw = random.random()
net = torch.nn.Linear(3, 1)
seeded = random.Random(1).random()
"""


def as_notebook(**values):
    return {"state": {name: state_of(value) for name, value in values.items()}}


def run(trial, **values):
    return trial(source=CELLS + DIGITS, slots=1, described=as_notebook(**values)).run()


def test_values_that_the_cells_do_not_make_end_it_before_the_first_step(trial):
    attempt = run(trial, cfg={"lr": 0.1}, draw=0.5, seeded=0.25, gone=1)
    failure = attempt.failures()[0]
    assert failure.type == "InvalidDefinition"
    lines = failure.message.split("\n")
    assert lines[0] == "cfg differs: notebook {'lr': 0.1}, job {'lr': 0.3} (cell [4])"
    assert lines[1].startswith("seeded differs: notebook 0.25, job 0.134")
    assert lines[2] == "gone differs: notebook 1, job nothing"
    assert "--capture cfg,seeded,gone" in lines[3]
    assert "--no-state-check" in lines[3]
    assert attempt.step == 0


def test_values_that_chance_makes_end_it_before_the_first_step(trial):
    import torch

    attempt = run(trial, cfg={"lr": 0.3}, draw=0.5, weights=torch.zeros(3), names=["h", "a"])
    failure = attempt.failures()[0]
    assert failure.type == "InvalidDefinition"
    assert "draw (cell [4]), weights (cell [4]), names (cell [4]) differ" in failure.message
    assert "made by chance" in failure.message
    assert "--capture draw,weights,names" in failure.message
    assert "cfg" not in failure.message
    assert attempt.step == 0


def test_first_weights_that_chance_makes_are_left_to_the_seed_of_the_job(trial):
    import torch

    attempt = run(trial, net=torch.nn.Linear(3, 1))
    assert set(attempt.codes) == {0}, attempt.logs()
    (note,) = [text for text in attempt.notes() if "made by chance" in text]
    assert note.startswith("net (cell [4]) differs from the notebook's")
    assert "--seed" in note


def test_equal_values_say_nothing(trial):
    import random

    attempt = run(trial, cfg={"lr": 0.3}, seeded=random.Random(1).random())
    assert set(attempt.codes) == {0}, attempt.logs()
    assert not any("differ" in text for text in attempt.notes())


def test_what_follows_from_being_a_rank_is_a_note(trial):
    source = '\nimport os\nWORLD = int(os.environ.get("WORLD_SIZE", "1"))\n' + DIGITS
    attempt = trial(source=source, slots=2, described=as_notebook(WORLD=1)).run()
    assert set(attempt.codes) == {0}, attempt.logs()
    (note,) = [text for text in attempt.notes() if "WORLD" in text]
    assert note.startswith("WORLD (cell [4]) differs from the notebook's in a rank alone")


def test_settings_that_the_job_has_otherwise_end_it_before_the_first_step(trial):
    was = Process(settings={"torch's default dtype": "torch.float64", "the recursion limit": "7777"})
    attempt = trial(source=CELLS + DIGITS, slots=1, described={"process": was} | as_notebook(cfg={"lr": 0.1})).run()
    failure = attempt.failures()[0]
    assert failure.type == "InvalidDefinition"
    lines = failure.message.split("\n")
    assert lines[0].startswith(
        "torch's default dtype differs: notebook torch.float64, job torch.float32. Add the line: "
    )
    assert "--no-state-check" in lines[1]
    assert lines[2].startswith("cfg differs: ")
    assert [text for text in attempt.notes() if "the recursion limit differs" in text]
    assert attempt.step == 0


def test_a_rank_of_its_own_has_every_setting_as_a_notebook_has(trial):
    attempt = trial(source=CELLS + DIGITS, slots=1, described={"process": Process()}).run()
    assert set(attempt.codes) == {0}, attempt.logs()
    assert not any("differ" in text for text in attempt.notes())
