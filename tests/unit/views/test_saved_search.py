"""Test that the saved output of a search fits its limit, and begins with the best trials."""

from __future__ import annotations

import math

from jupyter_ext.views.saved_state import SAVED_SEARCH, SAVED_TRIALS, fitted, saved_json
from kernel_backend.model.views.search_status import SearchCurves
from kernel_backend.search.report.status import Page, curves
from tests.support.builders import trial
from tests.unit.model.test_golden import overview
from tests.unit.search.test_status import experiment, outlines, played, seen, told

VALUES = [(7 * at) % 60 / 60 for at in range(60)]


def drawn() -> SearchCurves:
    log = played(VALUES).log
    return curves(experiment(), told(log), outlines(log), limit=30, points=40)


def test_a_search_of_usual_size_is_kept_whole() -> None:
    status, lines = seen(played(VALUES).log, Page(limit=SAVED_TRIALS)), drawn()
    found = fitted(status, lines)
    assert (found.standing.best, found.standing.trials, found.curves) == (status.best, status.trials, lines)
    assert found.standing.incumbent == status.incumbent
    entries = status.brackets[0].rungs[0].entries
    assert len(entries) > SAVED_TRIALS
    assert found.standing.brackets[0].rungs[0].entries == entries[:SAVED_TRIALS]


def test_of_a_larger_one_the_best_is_kept_and_it_fits() -> None:
    status, lines = seen(played(VALUES).log, Page(limit=SAVED_TRIALS)), drawn()
    wide = [row.model_copy(update={"params": {"text": "x" * 5000}}) for row in status.trials]
    found = fitted(status.model_copy(update={"trials": tuple(wide)}), lines)
    assert len(found.model_dump_json()) <= SAVED_SEARCH
    kept = len(found.standing.trials)
    assert 1 < kept < SAVED_TRIALS
    assert list(found.standing.trials) == wide[:kept]
    assert found.curves.lines == lines.lines[:kept]
    assert found.standing.brackets[0].rungs[0].results == status.brackets[0].rungs[0].results


def test_it_is_plain_json_in_the_output() -> None:
    found = fitted(seen(played([math.nan, 0.5]).log), drawn())
    kept = saved_json(overview(trial()), 1.0, search=found)["search"]["standing"]
    assert [(row["value"], row["best"]) for row in kept["trials"]] == [(0.5, 0.5), ("NaN", None)]
