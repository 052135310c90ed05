"""Test trials of earlier experiments as prior data of a new search."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kernel_backend.model.search.records import Create, ParamsAssigned, Reported, Settings
from kernel_backend.model.search.space import Space
from kernel_backend.search.log import apply_event, fold
from kernel_backend.search.make import make
from kernel_backend.search.prior import PriorTrial, comparable, prior_events
from kernel_backend.search.report.history import SearchHistory
from kernel_backend.spec.assignments import parse_line
from tests.support.search_builders import Logged, settings

LINE = "lr=1e-4..1e-1:log opt=sgd,adam momentum=0..0.9@opt=sgd"


def space(line: str = LINE) -> Space:
    return parse_line(line.split()).space


def trial(*values: float, **params: Any) -> PriorTrial:
    """Return a trial with a value at the end of each unit, and with the functions' default parameters."""
    given = {"lr": 1e-2, "opt": "adam", "momentum": 0.95, "width": 8} | params
    return PriorTrial(given, [(unit, value) for unit, value in enumerate(values, 1)])


def good_ones(count: int = 40) -> list[PriorTrial]:
    """Return trials between 1e-4 and 1e-1, which are better the nearer they are to 1e-2."""
    exponents = [-4 + 3 * each / (count - 1) for each in range(count)]
    return [trial(abs(each + 2), lr=10**each) for each in exponents]


def warmed(asked: Settings, trials: list[PriorTrial]) -> Logged:
    search = Logged(make(asked, space()))
    for event in prior_events(comparable(trials, space())):
        match event:
            case ParamsAssigned():
                search.told(event.trial, event.params)
            case Reported():
                search.on_report(event.trial, event.unit, event.value)
    return search


def test_only_what_the_new_space_has_is_told():
    (found,) = comparable([trial(0.5, lr=3e-3)], space("lr=1e-4..1e-1:log"))
    assert found.params == {"lr": 3e-3}
    assert [each.to_json() for each in prior_events([found])] == [
        {"type": "told", "trial": 0, "params": {"lr": 3e-3}},
        {"type": "reported", "trial": 0, "unit": 1, "value": 0.5, "seq": 0},
    ]


@pytest.mark.parametrize("params", [{"lr": 0.5}, {"opt": "lion"}, {"opt": "sgd"}])
def test_a_trial_outside_of_the_space_is_left_out(params: dict[str, Any]):
    assert comparable([trial(0.5, **params)], space()) == []


def test_a_default_beyond_its_range_does_no_harm_where_it_does_not_count():
    (found,) = comparable([trial(0.5, opt="adam", momentum=0.95)], space())
    assert found.params["opt"] == "adam"


def test_a_trial_without_a_value_is_left_out_and_a_search_without_a_space_takes_all_names():
    known = trial(0.5)
    assert comparable([trial(), known], Space()) == [known]


def test_their_numbers_lie_below_those_of_the_search():
    told = [each.trial for each in prior_events([trial(0.3, 0.2), trial(0.4)]) if isinstance(each, ParamsAssigned)]
    assert told == [0, -1]


def test_the_sampler_knows_them_from_its_first_ask():
    asked = settings(sampler="kde")
    warm, cold = warmed(asked, good_ones()), make(asked, space())
    near = [[_distance(search) for _ in range(30)] for search in (warm, cold)]
    assert sum(near[0]) / 30 < 0.6 * sum(near[1]) / 30


def _distance(search: Any) -> float:
    decision = search.on_slot()
    assert isinstance(decision, Create)
    lr = decision.params["lr"]
    assert isinstance(lr, float)
    return abs(math.log10(lr) + 2)


def test_rungs_know_nothing_of_them_and_nothing_is_decided_about_them():
    asked = settings()
    search = warmed(asked, good_ones())
    assert {entry.decision for entry in search.log} == {None}
    history = SearchHistory(asked, space(), 0.0)
    history.take(search.log)
    assert not history.trials
    assert not history.incumbent
    assert {len(rung) for bracket in history.brackets for rung in bracket.rungs} == {0}


@pytest.mark.parametrize(
    "asked", [{"sampler": "kde"}, {"method": "pbt", "sampler": "kde"}, {"method": "tpe", "sampler": None, "units": 1}]
)
def test_a_search_folded_from_a_log_that_begins_with_them_decides_the_same(asked: dict[str, Any]):
    warm = warmed(settings(**asked), good_ones())
    for _ in range(6):
        assert isinstance(warm.on_slot(), Create)
    for length in range(len(warm.log)):
        search = fold(settings(**asked), space(), warm.log[:length])
        assert apply_event(search, warm.log[length].event) == warm.log[length].decision
