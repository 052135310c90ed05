"""Test that the static picture of a search is always a PNG of one size, with and without results."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.api.picture import DARK, LIGHT
from kernel_backend.api.search_picture import draw_search
from kernel_backend.model.search.records import Create, Resume
from tests.support.search_builders import Logged, searcher
from tests.unit.api.test_picture import assert_drawn, overview
from tests.unit.search.test_status import experiment, seen


def trained(rounds: int, **asked: Any) -> Logged:
    """Return a search in which this many gangs have each trained a trial to its target."""
    search = Logged(searcher(**asked))
    for place in range(rounds):
        granted = search.on_slot()
        if isinstance(granted, Create | Resume):
            search.on_report(granted.trial, granted.until, (granted.trial * 7 % 10 + 1) / 10 ** (place % 4))
    return search


@pytest.mark.parametrize("rounds", [0, 1, 3, 40])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("method", ["asha", "hyperband", "random"])
def test_a_search_is_drawn_whatever_it_has_come_to(rounds: int, dark: bool, method: str) -> None:
    looked = overview().model_copy(update={"experiment": experiment(method=method), "trials": ()})
    status = seen(trained(rounds, method=method, sampler=None).log, method=method, sampler=None)
    assert_drawn(draw_search(looked, status, dark=dark), DARK if dark else LIGHT)


def test_values_that_are_none_are_drawn_all_the_same() -> None:
    search = Logged(searcher())
    for value in (float("nan"), float("inf"), -0.0, 1e300):
        granted = search.on_slot()
        assert isinstance(granted, Create)
        search.on_report(granted.trial, granted.until, value)
    looked = overview().model_copy(update={"experiment": experiment(), "trials": ()})
    assert_drawn(draw_search(looked, seen(search.log)), LIGHT)
