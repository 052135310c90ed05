"""Test when an experiment may be deleted, restored and freed, and the text about its disk space."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.model.disk import (
    DAY_S,
    UNDO_S,
    DiskUsage,
    delete,
    expired,
    may_purge,
    nearly_full,
    parse_age,
    undelete,
)
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.states import EXPERIMENT_ENDED, ExperimentState
from kernel_backend.model.views.overview import Overview
from kernel_backend.text.disk import usage_lines
from tests.unit.text.test_text import experiment


def of(state: ExperimentState = ExperimentState.COMPLETED, **fields: Any) -> Experiment:
    return experiment(state=state).model_copy(update=fields)


@pytest.mark.parametrize("state", ExperimentState)
def test_only_what_has_ended_is_deleted(state: ExperimentState):
    if state in EXPERIMENT_ENDED:
        assert delete(of(state), 7.0) == {"deleted_at": 7.0}
    else:
        with pytest.raises(Conflict, match=r"#12 has not ended.*daylight stop 12"):
            delete(of(state), 7.0)


def test_it_can_be_brought_back_for_a_day_and_then_be_freed():
    deleted = of(deleted_at=100.0)
    assert delete(deleted, 200.0) == {}  # the day goes on from the first time
    assert undelete(of(), 200.0) == {}
    assert undelete(deleted, 100.0 + UNDO_S) == {"deleted_at": None}
    assert not may_purge(deleted, 100.0 + UNDO_S)
    assert may_purge(deleted, 101.0 + UNDO_S)
    with pytest.raises(Conflict, match="more than a day ago"):
        undelete(deleted, 101.0 + UNDO_S)


def test_what_is_not_deleted_or_goes_on_again_is_never_freed():
    assert not may_purge(of(), 1e12)
    assert not may_purge(of(ExperimentState.ACTIVE, deleted_at=1.0), 1e12)


def test_a_deleted_one_says_so():
    assert Overview(experiment=of(deleted_at=1.0), trials=()).state == "deleted"
    assert Overview(experiment=of(deleted_at=1.0), trials=()).ended


def test_its_disk_space_is_told_largest_first():
    usage = DiskUsage(
        experiment=12,
        name="digits",
        owner="ada",
        bytes={"attempts": 2_000, "checkpoints": 1_500_000},
        stays=500_000,
        needed=("checkpoint 1/10-1 stays: #14 begins from it",),
    )
    assert (usage.total, usage.frees) == (1_502_000, 1_002_000)
    assert usage_lines(usage) == [
        "#12 digits: 1.5 MB (checkpoints 1.5 MB, attempts 2.0 kB)",
        "  checkpoint 1/10-1 stays: #14 begins from it",
    ]


def test_a_disk_is_nearly_full_below_a_tenth():
    assert nearly_full(10, 100) == ""
    assert nearly_full(9, 100) == "the disk is nearly full, 9% is free: daylight delete and daylight gc make room"
    assert nearly_full(0, 0) == ""


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 90 * DAY_S), (" 1d ", DAY_S), ("12h", DAY_S / 2), ("3600", 3600.0)]
)
def test_an_age_is_read_in_days_too(text: str, seconds: float):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["d", "59m", "0d", "1.5d", "-3d", "90 days"])
def test_an_age_of_less_than_an_hour_is_none(text: str):
    with pytest.raises(InvalidRequest, match="'"):
        parse_age(text)


@pytest.mark.parametrize("state", ExperimentState)
def test_logs_go_only_after_their_time_and_an_end(state: ExperimentState):
    ended = of(state, ended_at=10.0)
    assert expired(ended, 10.0 + DAY_S + 1, DAY_S) == (state in EXPERIMENT_ENDED)
    assert not expired(ended, 10.0 + DAY_S, DAY_S)
    assert not expired(ended, 10.0 + DAY_S + 1, None)
    assert not expired(of(state, ended_at=None), 1e12, DAY_S)
