"""Test the choice of a checkpoint: the newest, the best, or that of a step."""

from __future__ import annotations

import itertools
import random

import pytest

from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.checkpoints import CheckpointSelector, candidates, choose
from kernel_backend.model.experiment import Config, Metric
from kernel_backend.model.reports import Report
from kernel_backend.model.views.best import best_first, better
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.spec.slots import resumed_note

LOSS, ACCURACY = Metric(), Metric(name="accuracy", mode="max")
LATEST, BEST = CheckpointSelector(latest=True), CheckpointSelector(best=True)


def info(step: int, attempt: int = 1, trial: int = 1, **metrics: float) -> CheckpointInfo:
    return CheckpointInfo(id=f"{step}-{attempt}", trial=trial, step=step, epoch=1.0, bytes=1, at=0.0, metrics=metrics)


def ids(found: list[CheckpointInfo]) -> list[str]:
    return [each.id for each in found]


def test_the_newest_comes_first_whatever_the_order_and_the_next_older_after_it():
    found = [info(9), info(100, 1), info(20, 2), info(100, 2)]
    for seed in range(20):
        random.Random(seed).shuffle(found)
        assert ids(candidates(found, LOSS, LATEST)) == ["100-2", "100-1", "20-2", "9-1"]


def test_the_best_goes_by_the_metric_and_of_equal_ones_the_earlier_wins():
    found = [info(1, loss=0.3, accuracy=0.5), info(2, loss=0.2, accuracy=0.9), info(3, loss=0.2, accuracy=0.7)]
    found += [info(4), info(5, loss=float("nan"), accuracy=float("nan")), info(6, loss=float("-inf"))]
    assert ids(candidates(found, LOSS, BEST)) == ["2-1", "3-1", "1-1"]
    assert choose(found, ACCURACY, BEST).id == "2-1"
    with pytest.raises(NotFound, match="no checkpoint has a value of f1"):
        choose(found, Metric(name="f1"), BEST)


@pytest.mark.parametrize("metric", [LOSS, ACCURACY])
def test_the_best_checkpoint_is_that_of_the_best_trial_at_its_best_value(metric):
    chance = random.Random(5)
    for _ in range(200):
        bests, found = {1: None, 2: None, 3: None}, []
        for trial, step in itertools.product(bests, range(1, 4)):
            value = chance.choice([0.0, -0.0, 0.5, 1.0, float("nan"), float("inf"), float("-inf")])
            report = Report(kind="validation", step=step, epoch=1.0, metrics={metric.name: value})
            bests[trial] = better(bests[trial], report, metric)
            found.insert(chance.randint(0, len(found)), info(step, trial=trial, **report.metrics))
        first = best_first({trial: best.value for trial, best in bests.items() if best}, metric)[:1]
        if first:
            chosen = choose(found, metric, BEST)
            assert (chosen.trial, chosen.step) == (first[0], bests[first[0]].step)


def test_a_step_is_that_of_its_newest_attempt_and_has_no_other_to_fall_back_to():
    found = [info(5, 1), info(5, 2), info(6, 2)]
    assert ids(candidates(found, LOSS, CheckpointSelector(step=5))) == ["5-2", "5-1"]
    with pytest.raises(NotFound, match="no checkpoint at step 7; there are those at 5, 6"):
        choose(found, LOSS, CheckpointSelector(step=7))


def test_step_0_is_a_step():
    assert choose([info(0), info(5)], LOSS, CheckpointSelector(step=0)).id == "0-1"


@pytest.mark.parametrize(
    "which",
    [
        CheckpointSelector(),
        CheckpointSelector(True, True),
        CheckpointSelector(latest=True, step=5),
        CheckpointSelector(True, True, 5),
    ],
)
def test_exactly_one_thing_is_said(which):
    with pytest.raises(InvalidRequest, match="one of --latest, --best or --step"):
        choose([info(5)], LOSS, which)


def test_of_several_trials_only_the_best_is_one_checkpoint():
    found = [info(5, trial=1, loss=0.3), info(5, trial=2, loss=0.1)]
    assert choose(found, LOSS, BEST).trial == 2
    for which in (LATEST, CheckpointSelector(step=5)):
        with pytest.raises(InvalidRequest, match="several trials"):
            choose(found, LOSS, which)


def test_without_any_there_is_none():
    with pytest.raises(NotFound, match="no checkpoint has been committed"):
        choose([], LOSS, LATEST)


def test_other_slots_mean_other_bits_unless_logical_workers_are_fixed():
    said = resumed_note(Config(slots=1), before=2, slots=1, step=285)
    assert said.startswith("after step 285 with 1 slot instead of 2: ")
    assert "the last bits of the result may differ" in said
    assert "keeps its bits" in resumed_note(Config(slots=4, logical_workers=4), before=2, slots=4, step=285)
