"""Test a search as an Optuna study, and the importances computed from it."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from kernel_backend.model.states import TrialState
from kernel_backend.model.views.search_status import TrialCurve, TrialRow
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.report.columns import flat
from kernel_backend.search.report.study import importance, study
from kernel_backend.spec.assignments import parse_line

optuna = pytest.importorskip("optuna")

LINE = "lr=1e-4..1e-1:log width=16..256:log2 depth=1..4 opt=sgd,adam momentum=0..0.99@opt=sgd"
SPACE = parse_line(LINE.split()).space
NESTED = parse_line(["blocks=1..3", "block.kind=conv,res@each", "block.width=16..64@each"]).space


def drawn(space: Any, count: int) -> list[dict[str, Any]]:
    encoder, chance = Encoder(space), random.Random(3)
    return [flat(space, encoder.decode([chance.random() for _ in encoder.dimensions])) for _ in range(count)]


def row(trial: int, params: dict[str, Any], state: TrialState, value: float, best: float | None = None) -> TrialRow:
    best = value if best is None and math.isfinite(value) else best
    return TrialRow(trial=trial, state=state, params=params, unit=4, value=value, best=best)


@pytest.mark.parametrize("space", [SPACE, NESTED], ids=["flat", "nested"])
def test_every_trial_is_in_the_study_with_what_it_had(space: Any) -> None:
    states = [TrialState.COMPLETED, TrialState.PAUSED, TrialState.PRUNED, TrialState.RUNNING, TrialState.FAILED]
    params = drawn(space, 20)
    rows = [row(index, given, states[index % 5], index / 10) for index, given in enumerate(params, 1)]
    lines = [TrialCurve(trial=each.trial, state=each.state, unit=(1, 4), value=(0.9, each.value)) for each in rows]
    found = study("#12 digits", "min", space, rows[::-1], lines)
    assert [trial.params for trial in found.trials] == params
    assert [trial.user_attrs["daylight_trial"] for trial in found.trials] == list(range(1, 21))
    assert [trial.state.name for trial in found.trials[:5]] == ["PRUNED", "PRUNED", "RUNNING", "FAIL", "COMPLETE"]
    assert found.trials[4].value == 0.5
    assert found.trials[0].intermediate_values == {1: 0.9, 4: 0.1}
    assert found.best_trial.user_attrs["daylight_trial"] == 5  # the best of those that have completed


def test_a_metric_to_be_maximized_and_a_trial_that_diverged() -> None:
    rows = [
        row(1, drawn(SPACE, 1)[0], TrialState.COMPLETED, math.nan),
        row(2, drawn(SPACE, 2)[1], TrialState.COMPLETED, 0.75),
    ]
    lines = [TrialCurve(trial=1, state=TrialState.COMPLETED, unit=(1,), value=(None,))]
    found = study("digits", "max", SPACE, rows, lines)
    assert found.direction.name == "MAXIMIZE"
    assert [trial.state.name for trial in found.trials] == ["FAIL", "COMPLETE"]
    assert math.isnan(found.trials[0].intermediate_values[1])
    assert found.best_trial.user_attrs["daylight_trial"] == 2


def test_a_trials_value_is_the_best_that_it_has_had() -> None:
    given = drawn(SPACE, 2)
    rows = [row(1, given[0], TrialState.COMPLETED, math.nan, 0.25), row(2, given[1], TrialState.COMPLETED, 0.5)]
    found = study("digits", "min", SPACE, rows, [])
    assert ([trial.value for trial in found.trials], found.best_trial.number) == ([0.25, 0.5], 0)


def test_what_lies_outside_of_the_space_is_told_beside_it() -> None:
    found = study("digits", "min", SPACE, [row(1, {"lr": 5.0, "width": 32}, TrialState.COMPLETED, 0.5)], [])
    assert found.trials[0].params == {"width": 32}
    assert found.trials[0].user_attrs["lr"] == "5.0"


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_makes_the_difference_has_the_largest_share(mode: Any) -> None:
    params = drawn(SPACE, 200)
    sign = 1 if mode == "min" else -1
    values = [sign * abs(math.log10(given["lr"]) + 2) for given in params]
    found = importance(mode, SPACE, params, values, unit=4)
    assert next(iter(found.shares)) == "lr"
    assert sum(found.shares.values()) == pytest.approx(1)
    assert (found.unit, found.trials, found.missing) == (4, 200, "")


def test_of_too_few_trials_nothing_is_told() -> None:
    found = importance("min", SPACE, drawn(SPACE, 29), [0.1] * 29, unit=1)
    assert (found.shares, found.missing) == ({}, "29 trials have a result to compare; 30 are needed")
