"""Test cadences, configurations and submissions: valid and invalid values, and their JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import (
    Cadence,
    Config,
    Keep,
    Metric,
    Submission,
    parse_cadence,
    parse_duration,
    parse_keep,
    parse_metric,
)
from kernel_backend.model.reports import Delivery, Report


@pytest.mark.parametrize(
    ("text", "cadence"),
    [
        ("60s", Cadence(seconds=60)),
        ("0.5s", Cadence(seconds=0.5)),
        ("10m", Cadence(seconds=600)),
        ("1.5h", Cadence(seconds=5400)),
        ("1epoch", Cadence(epochs=1)),
        ("3 epochs", Cadence(epochs=3)),
        ("1step", Cadence(steps=1)),
        (" 500steps ", Cadence(steps=500)),
    ],
)
def test_an_interval_is_read_as_people_write_it(text: str, cadence: Cadence) -> None:
    assert parse_cadence(text) == cadence


@pytest.mark.parametrize("text", ["", "60", "s", "-5s", "0s", "0steps", "1.5epochs", "1e3s", "ten minutes", "5 days"])
def test_what_is_no_interval_is_refused_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_cadence(text)
    assert repr(text) in refused.value.message


@given(amount=st.integers(1, 10**9), unit=st.sampled_from(["s", "m", "h", "epoch", "epochs", "step", "steps"]))
def test_exactly_one_way_of_counting_is_set(amount: int, unit: str) -> None:
    cadence = parse_cadence(f"{amount}{unit}")
    assert sum(value is not None for value in cadence.to_json().values()) == 1


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("10m", 600), ("1.5h", 5400), ("45", 45)])
def test_a_length_of_time_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("best:3", Keep(best=3, latest=0)),
        ("latest:5, best:0", Keep(best=0, latest=5)),
        ("best_overall:2", Keep(best=0, latest=0, best_overall=2)),
    ],
)
def test_rules_of_what_to_keep_are_those_that_are_named(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep
    assert Keep() == parse_keep("best:1,latest:2")


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("mAP@0.5:0.95", Metric(name="mAP@0.5:0.95")),
        ("mAP@0.5:0.95:max", Metric(name="mAP@0.5:0.95", mode="max")),
        ("val:loss:min", Metric(name="val:loss")),
        ("F1:max", Metric(name="F1", mode="max")),
    ],
)
def test_the_name_of_a_metric_may_have_colons(text: str, metric: Metric) -> None:
    assert parse_metric(text) == metric


def test_a_metric_is_better_downwards_unless_it_says_otherwise() -> None:
    assert [parse_metric(text) for text in ("loss", "error:min", "accuracy:max")] == [
        Metric(),
        Metric(name="error"),
        Metric(name="accuracy", mode="max"),
    ]
    loss, accuracy = Metric(), Metric(name="accuracy", mode="max")
    assert loss.better(1.0, None)
    assert loss.better(1.0, 2.0)
    assert accuracy.better(2.0, 1.0)
    assert not any(each.better(1.0, 1.0) for each in (loss, accuracy))
    for nothing in (math.nan, math.inf, -math.inf):
        assert not any(each.better(nothing, than) for each in (loss, accuracy) for than in (None, 0.0))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_duration, "-1s"),
        (parse_duration, "soon"),
        (parse_keep, "best"),
        (parse_keep, "best:1,best:2"),
        (parse_keep, "all:3"),
        (parse_keep, "latest:-1"),
        (parse_keep, "best:0,latest:0"),
        (parse_metric, ":max"),
        (parse_metric, "loss:up"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_text(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(text)
    assert repr(text) in refused.value.message


def test_the_defaults_are_those_that_the_documentation_states() -> None:
    config = Config()
    assert (config.slots, config.epochs, config.batch_size, config.seed) == (1, 1, 32, 0)
    assert (config.backend, config.checkpoint_every, config.max_restarts) == ("auto", None, 5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("slots", 0), ("epochs", 0), ("batch_size", -1), ("seed", 2**63), ("backend", "mpi"), ("slotz", 2)],
)
def test_a_value_that_cannot_be_is_refused_and_named(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        Config(**{field: value})


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().slots = 2


@given(
    config=st.builds(Config, slots=st.integers(1, 64), epochs=st.integers(1, 10**6), seed=st.integers(0, 2**63 - 1)),
    params=st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
        max_size=5,
    ),
)
def test_a_submission_is_the_same_after_a_journey_as_json(config: Config, params: dict[str, Any]) -> None:
    sent = Submission(snapshot="0" * 64, config=config, params=params, python="/usr/bin/python3", cwd="/tmp")
    received = Submission.model_validate_json(json.dumps(sent.to_json()))
    assert received == sent
    assert {k: type(v) for k, v in received.params.items()} == {k: type(v) for k, v in params.items()}


def test_a_diverged_loss_travels_as_json_too() -> None:
    report = Report(kind="training", step=3, epoch=0.5, metrics={"loss": math.nan, "norm": math.inf})
    text = json.dumps({"records": [report.to_json()]}, allow_nan=False)
    (received,) = Delivery.model_validate_json(text).records
    assert isinstance(received, Report)
    assert math.isnan(received.metrics["loss"])
    assert received.metrics["norm"] == math.inf


def test_a_name_that_differs_in_case_and_signs_alone_is_the_metric() -> None:
    f1 = Metric(name="F1", mode="max")
    assert f1.spelled({"loss": 0.5, "f1": 0.9}) == {"loss": 0.5, "F1": 0.9}
    assert f1.spelled({"F1": 0.9, "f1": 0.1}) == {"F1": 0.9, "f1": 0.1}
    assert Metric(name="mAP@0.5:0.95").spelled({"map@0.5_0.95": 0.4}) == {"mAP@0.5:0.95": 0.4}
    assert (f1.of({"f1": 0.9}), f1.cost({"f1": 0.9}), f1.of({"loss": 0.5}), f1.cost({"f1": math.nan})) == (
        0.9, -0.9, None, math.inf,
    )  # fmt: skip


def test_the_advice_for_a_metric_is_python_whatever_its_name() -> None:
    assert [Metric(name=each).as_argument() for each in ("f1", "mAP@0.5")] == ["f1=...", "**{'mAP@0.5': ...}"]
