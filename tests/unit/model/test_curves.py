"""Test that downsampled curves keep extremes, gaps, and the newest value."""

from __future__ import annotations

import json
import math
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.reports import Kind
from kernel_backend.model.states import TrialState
from kernel_backend.model.views.curves import LARGEST, Curve, Curves, ReportedValues, gather, join, thin, trainings
from kernel_backend.model.views.throughput import throughput_of
from tests.support.builders import attempt, trial
from tests.unit.text.test_text import overview

Row = tuple[Kind, int, dict[str, float]]  # the epoch of a step is a hundredth of it, and it is told at a tenth


def told(*rows: Row, seq: int = 0) -> ReportedValues:
    return gather([(kind, step, step / 100, step / 10, metrics) for kind, step, metrics in rows], seq)


def trained(*values: float, first: int = 1) -> ReportedValues:
    """Return reports of these losses, one for each step."""
    return told(*[("training", step, {"loss": value}) for step, value in enumerate(values, first)])


def loss(what: ReportedValues, points: int = 400) -> Curve:
    (curve,) = thin(1, what, points).curves
    return curve


ANY = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.integers(1, 40)


@given(st.lists(ANY, min_size=1, max_size=200), POINTS)
def test_a_curve_has_at_most_so_many_points_and_stands_for_every_value(values: list[float], points: int) -> None:
    curve = loss(trained(*values), points)
    columns = (curve.size, curve.step, curve.epoch, curve.at, curve.mean, curve.low, curve.high)
    assert {len(column) for column in columns} == {len(curve.size)}
    assert len(curve.size) <= points
    assert sum(curve.size) == len(values)
    assert curve.step == tuple(accumulate(curve.size))  # of the last report of each point
    assert curve.epoch == tuple(step / 100 for step in curve.step)
    assert curve.at == tuple(step / 10 for step in curve.step)
    assert (curve.last, len(values)) == (values[-1], curve.step[-1]) or math.isnan(values[-1])


@given(st.lists(ANY, min_size=1, max_size=200), POINTS)
def test_each_point_tells_of_its_own_values_what_can_be_drawn_and_whether_there_were_others(
    values: list[float], points: int
) -> None:
    curve = loss(trained(*values), points)
    for place, end in enumerate(curve.step):
        own = values[end - curve.size[place] : end]
        finite = [value for value in own if abs(value) < LARGEST]
        low, mean, high = curve.low[place], curve.mean[place], curve.high[place]
        assert (place in curve.broken) == (len(finite) < len(own))
        if finite:
            assert low is not None
            assert mean is not None
            assert high is not None
            assert (low, high) == (min(finite), max(finite))
            assert low <= mean <= high
            assert math.isclose(mean, math.fsum(finite) / len(finite), abs_tol=1e-300)
        else:
            assert low is mean is high is None


REPORT = st.tuples(
    st.sampled_from(["training", "validation"]), st.dictionaries(st.sampled_from("abcd"), st.floats(-1, 1), max_size=4)
)


@given(st.lists(REPORT, max_size=40), st.data())
def test_what_is_read_in_pieces_and_in_any_order_makes_the_same_curves(
    reports: list[tuple[Kind, dict[str, float]]], data: st.DataObject
) -> None:
    rows: list[Row] = [(kind, step, metrics) for step, (kind, metrics) in enumerate(reports)]
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    ends = [0, *cuts, len(rows)]
    pieces = [shuffled[begin:end] for begin, end in pairwise(ends) if begin < end]
    found = thin(1, join([told(*piece) for piece in pieces]), 400).curves
    expected = [
        (kind, name, [(step, metrics[name]) for own, step, metrics in rows if own == kind and name in metrics])
        for kind, name in dict.fromkeys((kind, name) for kind, _, metrics in shuffled for name in metrics)
    ]
    assert [(c.kind, c.metric, list(zip(c.step, c.mean, strict=True))) for c in found] == expected


def test_values_that_follow_make_the_curve_longer_and_leave_what_was_told_as_it_was() -> None:
    before = trained(3.0, 2.0)
    assert loss(join([before, trained(1.0, first=3)])).mean == (3.0, 2.0, 1.0)
    assert loss(before).mean == (3.0, 2.0)


def test_late_reports_of_an_older_attempt_go_to_their_place() -> None:
    first, successor, late = trained(5.0, 4.0), trained(1.0, 0.5, first=5), trained(3.0, 2.0, first=3)
    curve = loss(join([first, successor, late]))
    assert curve.step == (1, 2, 3, 4, 5, 6)
    assert curve.mean == (5.0, 4.0, 3.0, 2.0, 1.0, 0.5)
    assert curve.at == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert curve.last == 0.5


def test_a_report_that_was_completed_is_one_point_of_the_metrics_that_it_had() -> None:
    first = told(("validation", 1, {"acc": 0.5}), ("validation", 2, {"acc": 0.6}))
    curves = thin(1, join([first, told(("validation", 2, {"acc": 0.6, "test": 0.9}))]), 400).curves
    assert [(each.metric, each.step, each.mean) for each in curves] == [
        ("acc", (1, 2), (0.5, 0.6)),
        ("test", (2,), (0.9,)),
    ]


def test_metrics_stand_in_the_order_in_which_they_were_first_told() -> None:
    found = told(
        ("validation", 2, {"f1": 0.5, "accuracy": 0.7}),
        ("training", 1, {"loss": 1.0}),
        ("validation", 4, {"loss": 0.9, "accuracy": 0.8}),
    )
    names = [(curve.kind, curve.metric, curve.step) for curve in thin(1, found, 400).curves]
    assert names == [
        ("validation", "f1", (2,)),
        ("validation", "accuracy", (2, 4)),
        ("training", "loss", (1,)),
        ("validation", "loss", (4,)),
    ]


def test_a_broken_value_is_marked_and_in_no_mean() -> None:
    curve = loss(trained(1.0, math.nan, 3.0, -math.inf, 1e300, 2.0), points=3)
    assert curve.size == (2, 2, 2)
    assert curve.mean == (1.0, 3.0, 2.0)
    assert curve.broken == (0, 1, 2)
    assert loss(trained(1.0, math.nan, math.nan)).mean == (1.0, None, None)


def test_equal_values_have_no_band() -> None:
    curve = loss(trained(*[0.1] * 3000), points=1000)
    assert curve.low == curve.mean == curve.high


def test_many_values_become_a_few_hundred_points_that_keep_the_extremes() -> None:
    curve = loss(trained(*[float(step % 10) for step in range(1, 10_001)]))
    assert len(curve.mean) == 400
    assert set(zip(curve.low, curve.high, strict=True)) == {(0.0, 9.0)}
    assert (curve.last, curve.step[-1]) == (0.0, 10_000)


def test_nothing_told_is_no_curve() -> None:
    assert thin(2, ReportedValues(), 400) == Curves(trial=2)
    assert thin(1, told(("training", 1, {}), seq=4), 400) == Curves(trial=1, seq=4)


def test_curves_go_over_the_wire_and_come_back() -> None:
    there = thin(1, trained(1.0, math.inf), 400)
    text = json.dumps(there.to_json(), allow_nan=False)
    assert json.loads(text)["curves"][0]["last"] == "Infinity"
    assert Curves.model_validate_json(text) == there


@pytest.mark.parametrize("points", [5, 8, 100])
def test_a_point_stands_for_one_training_and_a_later_training_begins_a_new_one(points: int) -> None:
    epochs = [(step - first) / 2 for first, last in ((0, 9), (9, 18)) for step in range(first + 1, last + 1)]
    heard = [("training", step, epoch, 0.0, {"loss": 1.0}) for step, epoch in enumerate(epochs, 1)]
    curve = loss(gather(heard, 1), points)
    assert len(curve.size) <= points
    begins = trainings(curve.epoch)
    assert sum(curve.size[: begins[-1]]) == 9


def test_epochs_in_disorder_are_no_trainings() -> None:
    disorder = gather([("training", step, -float(step), 0.0, {"loss": 1.0}) for step in range(1, 101)], 1)
    assert len(loss(disorder, 10).size) == 10


def test_a_pace_is_that_of_the_newest_attempt_of_late() -> None:
    rows = thin(
        1, gather([("training", 10 * at, 0.0, float(at), {"rows": 1}) for at in range(101, 201)], 0), 400
    ).curves
    running = trial(TrialState.RUNNING, experiment=12, total_steps=3000)
    shown = overview(running, attempts=(attempt(created_at=100.0),))
    assert throughput_of(shown, rows, 200.0) == (10.0, 100.0)
    assert throughput_of(shown, rows, 205.0) == (10.0, 95.0)
    again = overview(running, attempts=(attempt(created_at=100.0), attempt(number=2, created_at=250.0)))
    assert throughput_of(again, rows, 260.0) is None
    assert throughput_of(overview(running.model_copy(update={"state": TrialState.COMPLETED})), rows, 200.0) is None
    slower = gather([("training", at + 500 * (at > 400), 0.0, float(at), {"rows": 1}) for at in range(101, 801)], 0)
    assert throughput_of(shown, thin(1, slower, 2000).curves, 800.0) == (1.0, 1700.0)
