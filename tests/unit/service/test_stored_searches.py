"""Test that a packed search is restored unchanged, and that data of other versions is ignored."""

from __future__ import annotations

import math

import pytest

from kernel_backend.model.search.records import Settings
from kernel_backend.model.states import TrialState
from kernel_backend.model.trial import Best
from kernel_backend.model.views.search_status import TrialSummary
from kernel_backend.search.report.history import SearchHistory
from kernel_backend.service.search import stored
from kernel_backend.service.search.stored import CachedSearch, pack, unpack
from tests.support.search_builders import SPACE, Logged, create, searcher, settings

TRIALS = {
    1: TrialSummary(1, TrialState.COMPLETED, 2, None, Best(value=0.25, step=40, epoch=4.0)),
    2: TrialSummary(2, TrialState.FAILED, 1, "ValueError", None),
}


def searched(asked: Settings) -> CachedSearch:
    """Return a search of which eight trials have reported, one of them a value that is not finite."""
    search = Logged(searcher(method=asked.method))
    for trial, value in zip(
        create(search, 8), (0.5, 0.7, math.nan, 0.2, 0.1 + 0.2, 5e-324, 0.9, math.inf), strict=True
    ):
        search.on_report(trial, 1, value)
    search.close()
    history = SearchHistory(asked, SPACE, begun=100.0)
    history.take(search.log)
    return CachedSearch(history, seq=77, trials=TRIALS, seconds={1: 0.1, 2: 300.0})


def facts(cached: CachedSearch) -> str:
    """Return all data that views show of a search, as text, since NaN does not equal itself."""
    history = cached.history
    ladders = [[(rung.unit, rung.places) for rung in bracket.rungs] for bracket in history.brackets]
    course = (history.trials, history.incumbent, history.columns, history.trained, history.diverged, history.entries)
    return repr((course, history.limit, history.closed, ladders, cached.seq, cached.trials, cached.seconds))


@pytest.mark.parametrize("method", ["asha", "random"])
def test_what_was_packed_is_unpacked_as_it_was(method: str) -> None:
    cached = searched(settings(method=method))
    found = unpack(pack(cached), cached.history.settings, SPACE, 100.0)
    assert found is not None
    assert facts(found) == facts(cached)
    assert found.stored == cached.history.entries
    assert (found.history.restored is not None) == (method == "asha")


def test_what_was_packed_for_other_settings_or_by_another_version_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings(method="random")
    packed = pack(searched(asked))
    assert unpack(packed, settings(method="random", trials=99), SPACE, 100.0) is None
    monkeypatch.setattr(stored, "FORMAT", stored.FORMAT + 1)
    assert unpack(packed, asked, SPACE, 100.0) is None
