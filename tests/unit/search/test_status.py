"""Test that the status of a search follows from the log alone, and agrees with the searcher."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.commands.search import trial_cells
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config, Experiment, Metric
from kernel_backend.model.reports import Report
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.methods import CHECKPOINTS
from kernel_backend.model.search.records import Closed, Create, Extended, LogEntry, Reported, Resume, Search
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.states import ExperimentState, TrialState
from kernel_backend.model.trial import Best
from kernel_backend.model.views.best import better
from kernel_backend.model.views.search_status import SearchStatus, TrialSummary
from kernel_backend.search.report.columns import columns, flat
from kernel_backend.search.report.history import SearchHistory, ranked_values
from kernel_backend.search.report.status import Page, curves, search_status
from kernel_backend.search.report.usage import usage_text
from tests.support.search_builders import SPACE, Logged, create, searcher, settings


def experiment(**asked: Any) -> Experiment:
    metric = Metric(name="error", mode=asked.get("mode", "min"))
    search = Search(method=asked.get("method", "asha"), trials=64)
    return Experiment(
        number=1,
        name="digits",
        state=ExperimentState.ACTIVE,
        owner="ada",
        group="ada",
        snapshot="0" * 64,
        config=Config(epochs=16, metric=metric, search=search),
        params={},
        space=SPACE,
        python="python",
        cwd="/",
        notebook=None,
        created_at=100.0,
    )


def told(log: list[LogEntry], **asked: Any) -> SearchHistory:
    history = SearchHistory(settings(**asked), SPACE, begun=100.0)
    history.take(log)
    return history


def seen(log: list[LogEntry], page: Page | None = None, **asked: Any) -> SearchStatus:
    history = told(log, **asked)
    return search_status(experiment(**asked), history, outlines(log, **asked), {1: 5.0, 2: 7.0}, 160.0, page or Page())


def outlines(log: list[LogEntry], **asked: Any) -> list[TrialSummary]:
    """Return the summaries of a log's trials, as in a store: all paused, with their best reported values."""
    metric, bests = experiment(**asked).config.metric, dict[int, Best | None]()
    for entry in log:
        if isinstance(entry.decision, Create):
            bests[entry.decision.trial] = None
        if isinstance(entry.event, Reported):
            told = entry.event
            report = Report(kind="validation", step=10 * told.unit, epoch=told.unit, metrics={"error": told.value})
            bests[told.trial] = better(bests[told.trial], report, metric)
    return [TrialSummary(trial, TrialState.PAUSED, 1, None, best) for trial, best in sorted(bests.items())]


def played(values: list[float], **asked: Any) -> Logged:
    """Return new trials, each of which reports one of these values at the first rung."""
    search = Logged(searcher(**asked))
    for trial, value in zip(create(search, len(values)), values, strict=True):
        search.on_report(trial, 1, value)
    return search


def test_the_best_is_the_best_value_ever_reported_and_its_way_is_kept() -> None:
    found = seen(played([0.5, 0.7, 0.2]).log)
    assert [(better.trial, better.value, better.units) for better in found.incumbent] == [(1, 0.5, 1), (3, 0.2, 3)]
    assert found.best is not None
    assert (found.best.trial, found.best.best, found.best.best_unit) == (3, 0.2, 1)
    assert (found.trained, found.total, found.spent, found.elapsed) == (3, 3, 12.0, 60.0)


def test_of_a_metric_to_be_maximized_the_greatest_is_the_best_everywhere() -> None:
    found = seen(played([0.5, 0.7, 0.2], mode="max").log, mode="max")
    assert [better.value for better in found.incumbent] == [0.5, 0.7]
    assert [row.best for row in found.trials] == [0.7, 0.5, 0.2]
    assert [value for _, value in found.brackets[0].rungs[0].entries] == [0.7, 0.5, 0.2]


def test_of_equal_values_the_first_trials_is_the_best() -> None:
    found = seen(played([0.5, 0.2, 0.2]).log)
    assert found.best is not None
    assert (found.best.trial, [row.trial for row in found.trials]) == (2, [2, 3, 1])


def test_the_best_may_have_been_within_a_unit_that_no_searcher_heard_of() -> None:
    log = played([0.5, 0.3]).log
    trials = [replace(outlines(log)[0], best=Best(value=0.1, step=25, epoch=2.5)), outlines(log)[1]]
    found = search_status(experiment(), told(log), trials, {}, 160.0, Page())
    assert found.best is not None
    assert (found.best.trial, found.best.value, found.best.best, found.best.best_unit) == (1, 0.5, 0.1, 3)
    assert [row.trial for row in found.trials] == [1, 2]
    assert curves(experiment(), told(log), trials, limit=2, points=9).lines[0].trial == 1


def test_what_diverged_is_counted_marked_and_never_the_best() -> None:
    found = seen(played([math.nan, 0.7, math.inf]).log)
    assert [better.value for better in found.incumbent] == [0.7]
    assert found.diverged == 2
    assert [(row.trial, row.diverged, row.best) for row in found.trials] == [
        (2, False, 0.7),
        (1, True, None),
        (3, True, None),
    ]
    rung = found.brackets[0].rungs[0]
    assert (rung.results, rung.best, len(rung.entries)) == (3, 0.7, 1)


def test_a_trial_that_diverged_later_says_from_when_its_best_is() -> None:
    log = played([math.nan, 0.3]).log
    trials = [replace(outlines(log)[0], best=Best(value=0.1, step=5, epoch=1.0)), outlines(log)[1]]
    found = search_status(experiment(), told(log), trials, {}, 160.0, Page())
    states = {row.trial: trial_cells(found, row)[1].partition(", ")[2] for row in found.trials}
    assert states == {1: "diverged after epoch 1", 2: ""}


def test_a_rung_says_who_may_go_on_and_how_many_have() -> None:
    search = played([0.5, 0.4, 0.3])
    before = seen(search.log).brackets[0].rungs[0]
    assert (before.cut, before.went_on) == (None, 0)
    (fourth,) = create(search, 1)
    search.on_report(fourth, 1, 0.9)
    assert seen(search.log).brackets[0].rungs[0].cut == 0.3  # the best one of four may go on
    assert isinstance(search.on_slot(), Resume)
    after = seen(search.log)
    assert after.brackets[0].rungs[0].went_on == 1
    assert after.trials[0].until == 4


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=40), mode=st.sampled_from(["min", "max"]))
def test_sorted_by_the_best_the_best_comes_first_and_turned_round_last(values: list[float], mode: str) -> None:
    log = played(values, mode=mode).log
    rows = seen(log, mode=mode).trials
    assert [row.best for row in rows] == sorted(
        (row.best for row in rows if row.best is not None), reverse=mode == "max"
    )
    turned = seen(log, Page("-best"), mode=mode).trials
    assert [row.best for row in turned] == [row.best for row in reversed(rows)]


@given(cut=st.integers(0, 30))
def test_a_story_that_is_read_on_is_the_one_that_is_read_at_once(cut: int) -> None:
    log = played([((7 * at) % 20) / 20 for at in range(20)]).log
    history = told(log[:cut])
    history.take(log[cut:])
    whole = told(log)
    assert (history.trials, history.incumbent, history.trained) == (whole.trials, whole.incumbent, whole.trained)
    assert [[rung.places for rung in bracket.rungs] for bracket in history.brackets] == [
        [rung.places for rung in bracket.rungs] for bracket in whole.brackets
    ]


def test_a_page_is_a_part_of_the_whole() -> None:
    log = played([at / 10 for at in range(10)]).log
    whole = seen(log).trials
    assert seen(log, Page("best", limit=3, offset=2)).trials == whole[2:5]
    assert seen(log, Page("best", limit=3, offset=9)).trials == whole[9:]


def test_a_hyperparameter_is_a_column_and_who_has_it_not_comes_last_either_way() -> None:
    log = played([at / 10 for at in range(12)]).log
    for sort in ("momentum", "-momentum"):
        has = ["momentum" in row.params for row in seen(log, Page(sort)).trials]
        assert has == sorted(has, reverse=True)
    assert len(set(has)) == 2, "the space has trials of both kinds"


def test_a_column_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="momentum"):
        seen(played([0.5]).log, Page("momentun"))


def test_what_a_search_has_used_is_told_with_what_it_may():
    asked = experiment().config
    search = asked.search or Search()
    limited = asked.model_copy(update={"search": search.model_copy(update={"budget": 3600.0})})
    history = told([*played([0.5] * 8).log, LogEntry(number=99, at=1.0, event=Closed(limit="budget"))])
    assert usage_text(limited, history, 12.0) == (
        "asha: at each rung the best quarter goes on \u00b7 "
        "8 epochs trained in 12 s of 1 h 00 min of slot time; its budget is used up"
    )
    assert usage_text(limited, history, 0.0) == ""
    short = usage_text(asked, told(played([0.5], first_rung=4).log, first_rung=4), 12.0)
    assert short == "asha: after epoch 4 the best quarter goes on \u00b7 1 epoch trained in 12 s of slot time"


def test_of_a_followed_training_its_checkpoints_are_counted():
    followed = experiment().config.model_copy(update={"form": "evaluation", "search": Search(method=CHECKPOINTS.name)})
    assert usage_text(followed, told(played([0.5, 0.4]).log), 3.0) == "2 checkpoints measured in 3.0 s of slot time"


def test_a_closed_search_says_why_and_an_extended_one_has_another_limit() -> None:
    log = played([0.5]).log
    closed = LogEntry(number=len(log) + 1, at=1.0, event=Closed(limit="max_time"))
    assert seen([*log, closed]).closed == "max_time"
    more = LogEntry(number=len(log) + 2, at=2.0, event=Extended(trials=100))
    found = seen([*log, closed, more])
    assert (found.closed, found.limit) == (None, 100)


def test_results_are_compared_at_the_highest_unit_that_has_enough_of_them() -> None:
    search = played([at / 150 for at in range(150)], trials=150)
    assert ranked_values(told(search.log))[0] == 1
    for _ in range(38):  # the best of them goes beyond
        resumed = search.on_slot()
        if isinstance(resumed, Resume):
            search.on_report(resumed.trial, 4, resumed.trial / 100)
    unit, values = ranked_values(told(search.log))
    assert unit == 4
    assert len(values) >= 30
    assert values == {trial: trial / 100 for trial in values}


def test_the_curves_of_many_are_the_best_of_them_and_some_of_the_rest() -> None:
    log = played([at / 40 for at in range(40)]).log
    found = curves(experiment(), told(log), outlines(log), limit=10, points=60)
    assert (found.of, len(found.lines)) == (40, 10)
    chosen = [line.trial for line in found.lines]
    assert chosen[:5] == [1, 2, 3, 4, 5]
    assert chosen[5:] == sorted(chosen[5:])
    assert len(set(chosen)) == 10


def test_a_thinned_curve_keeps_its_last_value_and_only_values_that_were_reported() -> None:
    search = Logged(searcher(units=512, eta=2, first_rung=256))
    create(search, 1)
    for unit in range(1, 257):
        search.on_report(1, unit, 1 / unit)
    history = SearchHistory(settings(units=512, eta=2, first_rung=256), SPACE, begun=0.0)
    history.take(search.log)
    (line,) = curves(experiment(), history, outlines(search.log), limit=5, points=10).lines
    assert len(line.unit) <= 10
    assert line.unit[-1] == 256
    assert all(value == 1 / unit for unit, value in zip(line.unit, line.value, strict=True))


NESTED = Space(
    parameters=(
        Parameter(name="blocks", domain=Range(low=1, high=3, whole=True)),
        Parameter(name="width", domain=Range(low=16, high=256, whole=True), each="blocks"),
    )
)


def test_blocks_are_columns_of_their_own() -> None:
    assert [column.name for column in columns(NESTED)] == ["blocks", *(f"blocks[{at}].width" for at in range(3))]
    assert flat(NESTED, {"blocks": [{"width": 16}, {"width": 32}], "lr": 0.1}) == {
        "blocks": 2,
        "blocks[0].width": 16,
        "blocks[1].width": 32,
    }


def test_without_a_space_all_hyperparameters_are_columns() -> None:
    assert flat(Space(), {"a": 1, "b": [1, 2]}) == {"a": 1, "b": [1, 2]}
