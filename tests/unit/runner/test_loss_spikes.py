"""Test that losses which jump and stay high are detected; hard batches, noise and falling losses are not."""

from __future__ import annotations

import json
import math
import random

import pytest

from kernel_backend.model.reports import Report
from kernel_backend.runner.ipc import Spool
from kernel_backend.runner.metrics.loss_spikes import LEAST, MOST, WINDOW, LossSpikes


def notes(losses, name="loss"):
    spikes = LossSpikes()
    return [text for step, loss in enumerate(losses, 1) if (text := spikes.take(step, {name: loss}))]


def falling(count, seed=0):
    """Return a usual loss curve, which falls with the noise of batches."""
    draw = random.Random(seed)
    return [2.3 * math.exp(-step / 200) * draw.lognormvariate(0, 0.3) for step in range(count)]


def test_a_jump_that_stays_is_told_with_its_step_and_the_usual_level():
    (text,) = notes([0.5, 0.6] * 30 + [7.0, 8.0, 9.0, 9.5, 9.5])
    assert text.startswith("loss jumped at step 61: 7 after 0.55, the median of the 50 reports before")
    assert "stays up at 9." in text


@pytest.mark.parametrize("seed", range(20))
def test_a_curve_with_the_noise_of_batches_is_none(seed):
    assert notes(falling(2000, seed)) == []


@pytest.mark.parametrize(
    "losses",
    [
        [0.5, 0.6] * 30 + [50.0, 0.5, 40.0, 60.0, 0.5] * 9,  # hard batches
        [0.1] * (LEAST - 1) + [9.0] * 3,  # too early to know what is usual
        [0.0] * 60,
        [-3.0, -3.1] * 30,
        [0.5, 0.6] * 30 + [math.nan, math.inf] * 5,  # told by --on-nan
        [0.5, 0.6] * 30 + [0.7] * 5,
    ],
)
def test_what_is_no_jump(losses):
    assert notes(losses) == []


def test_a_loss_below_zero_can_jump_too():
    assert len(notes([-3.0, -3.1] * 30 + [40.0] * 5)) == 1


def test_a_lasting_level_becomes_the_usual_one_and_notes_are_few():
    levels = [0.5, 0.6] * 30
    for level in (10.0, 200.0, 4000.0, 80000.0):
        levels += [level, level * 1.1] * WINDOW
    assert len(notes(levels)) == MOST


@pytest.mark.parametrize(("name", "noted"), [("train_loss", 1), ("Loss", 1), ("reward", 0), ("accuracy", 0)])
def test_only_losses_are_judged(name, noted):
    assert len(notes([0.5, 0.6] * 30 + [9.0] * 3, name)) == noted


def test_the_note_follows_the_report_in_the_spool(tmp_path):
    spool = Spool(tmp_path / "spool.jsonl", 0)
    for step, loss in enumerate([0.5, 0.6] * 30 + [9.0] * 3, 1):
        spool.say(Report(kind="training", step=step, epoch=0.1, metrics={"loss": loss}))
        spool.say(Report(kind="validation", step=step, epoch=0.1, metrics={"loss": loss}))
    records = [json.loads(line) for line in (tmp_path / "spool.jsonl").read_text().splitlines()]
    (note,) = (each for each in records if each["type"] == "note")
    assert note["level"] == "warning"
    assert records[note["number"] - 2]["step"] == 63
    assert [each["number"] for each in records] == list(range(1, 128))


def test_losses_of_another_training_are_not_compared_with_those_before():
    spikes = LossSpikes()
    spikes.begin(60)  # known before the last reports of the first training come
    losses = [0.5, 0.6] * 30 + [7.0, 8.0, 9.0, 9.5] + [6.0, 7.0] * 30 + [80.0, 85.0, 90.0]
    texts = [text for step, loss in enumerate(losses, 1) if (text := spikes.take(step, {"loss": loss}))]
    assert [text.split(":")[0] for text in texts] == ["loss jumped at step 125"]
