"""Test the evaluation of reported values: best validation, patience, non-finite values."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernel_backend.errors import InvalidDefinition, NotFinite
from kernel_backend.model.experiment import Config, Metric
from kernel_backend.runner.loop.judgement import Judgement

NAN = math.nan


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def judgement(notes: list[str]) -> Callable[..., Judgement]:
    return lambda **config: Judgement(Config(**config), lambda text, level: notes.append(text))


def test_the_first_value_that_is_not_finite_is_noted_once_with_its_step(judgement, notes):
    judged = judgement(on_nan="go-on")
    for step in range(1, 9):
        judged.training(step, {"norm": math.inf if step > 2 else 1.0, "loss": NAN})
    assert notes == ["loss is nan at step 1"]


@pytest.mark.parametrize("name", ["loss", "train_loss", "train/loss_step", "d_loss"])
def test_a_loss_that_is_not_finite_three_times_in_a_row_ends_the_training(judgement, name):
    judged = judgement()
    for step, value in enumerate([NAN, NAN, 1.0, NAN, NAN], 1):
        judged.training(step, {name: value})
    with pytest.raises(NotFinite, match=f"{name} is nan since step 4, in 3 reports in a row. A lower"):
        judged.training(6, {name: NAN})


def test_what_is_no_loss_may_stay_infinite(judgement):
    judged = judgement()
    for step in range(9):
        judged.training(step, {"grad_norm": math.inf, "loss": 1.0})


def test_three_validations_in_a_row_that_are_not_finite_end_the_training(judgement, notes):
    judged = judgement()
    for step, value in enumerate([NAN, 1.0, NAN, NAN]):
        assert judged.validation(step, {"loss": value}) == (step == 1)
    again = judgement()
    again.restore(judged.state(), of_another=False)
    with pytest.raises(NotFinite, match="the validation's loss is nan at step 5, and was not finite in the 2 valid"):
        again.validation(5, {"loss": NAN})
    assert notes == ["the validation's loss is nan at step 0", "the validation's loss is nan at step 2"]


@pytest.mark.parametrize(("weight", "fails"), [(NAN, True), (1.0, False)])
def test_a_training_that_ends_with_such_a_loss_fails_if_its_weights_are_lost(judgement, weight, fails):
    judged, layer = judgement(), nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(weight)
    judged.end([layer])
    judged.training(1, {"loss": NAN})
    if not fails:
        judged.end([layer])
        return
    with pytest.raises(NotFinite, match="loss is not finite since step 1, and parameter weight is nan at the end"):
        judged.end([layer])


def test_patience_ends_with_a_note_and_begins_anew_in_a_continued_experiment(judgement, notes):
    judged = judgement(patience=2)
    for step, value in enumerate([0.5, 0.6, 0.7]):
        assert not judged.stopped
        judged.validation(step, {"loss": value})
    assert judged.stopped
    assert notes == ["stopped early at step 2: 2 validations without a better loss; the best was 0.5"]
    same, other = judgement(patience=2), judgement(patience=2)
    same.restore(judged.state(), of_another=False)
    other.restore(judged.state(), of_another=True)
    assert (same.stopped, other.stopped, other.best) == (True, False, 0.5)


def test_an_extra_validation_may_be_the_best_and_does_not_count(judgement, notes):
    judged = judgement(patience=1)
    assert judged.validation(1, {"loss": 0.5})
    assert not judged.validation(2, {"loss": NAN}, counts=False)
    assert judged.validation(2, {"loss": 0.4}, counts=False)
    assert (judged.stopped, judged.best, notes) == (False, 0.4, [])


def test_no_early_stop_is_told_at_the_last_step(judgement, notes):
    judged = judgement(patience=1)
    judged.validation(1, {"loss": 0.5}, place="after epoch 1")
    judged.validation(2, {"loss": 0.6}, place="after epoch 2", last=True)
    assert (judged.stopped, notes) == (True, [])


def test_patience_needs_its_metric(judgement):
    with pytest.raises(
        InvalidDefinition, match="f1 is reported, no loss, and --patience goes by it: write --metric f1:max"
    ):
        judgement(patience=1).validation(1, {"f1": 0.5})
    given = Metric(name="acc", mode="max")
    with pytest.raises(InvalidDefinition, match=r"--metric acc: .* no such metric, only f1; --patience goes"):
        judgement(patience=1, metric=given).validation(1, {"f1": 0.5})


@pytest.mark.parametrize(
    ("reported", "metric"),
    [
        (("val_acc", "val_loss"), "val_acc:max"),
        (("val_loss", "val_acc"), "val_loss"),
        (("seconds", "top1"), "top1:max"),
        (("seconds",), "seconds:min"),
    ],
)
def test_a_user_who_gave_no_metric_is_told_how_to_choose_one(judgement, notes, reported, metric):
    judged = judgement()
    judged.validation(1, dict.fromkeys(reported, 0.5))
    judged.end(())
    (note,) = notes
    assert note.endswith(f", no loss: write --metric {metric} to keep the best checkpoint")
    assert "--metric loss" not in note


def test_a_metric_that_was_given_and_is_not_reported_is_named(judgement, notes):
    judged = judgement(metric=Metric(name="f1", mode="max"))
    judged.validation(1, {"accuracy": 0.5})
    judged.end(())
    assert notes == ["--metric f1: the validation reports no such metric, only accuracy; no checkpoint is best"]


def test_a_metric_that_is_missing_is_noted_once_whatever_else_later_validations_report(judgement, notes):
    judged = judgement()
    for step, metrics in enumerate([{"rmse": 0.5}, {"rmse": 0.4}, {"rmse": 0.3, "best": 0.4}, {"final": 0.3}]):
        judged.validation(step, metrics)
    judged.end(())
    assert notes == ["rmse is reported, no loss: write --metric rmse to keep the best checkpoint"]


def test_a_metric_that_only_the_first_validation_lacks_is_not_noted(judgement, notes):
    judged = judgement()
    judged.validation(1, {"teacher": 0.9})
    assert judged.validation(2, {"loss": 0.5})
    judged.end(())
    assert notes == []


def test_a_validation_of_functions_without_the_metric_is_told_at_once(notes):
    judged = Judgement(Config(), lambda text, level: notes.append(text), lacking=1)
    judged.validation(1, {"f1": 0.5})
    judged.validation(2, {"f1": 0.6})
    judged.end(())
    assert notes == ["f1 is reported, no loss: write --metric f1:max to keep the best checkpoint"]
