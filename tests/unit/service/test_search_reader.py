"""Test that a search is read incrementally, with the same results as when all is read at once."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.model import events as e
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Report
from kernel_backend.model.resources import Share
from kernel_backend.model.search.effects import Added
from kernel_backend.model.search.records import Continue, Create, LogEntry, LoggedReport, Reported, Search, Vacancy
from kernel_backend.model.states import Outcome
from kernel_backend.model.views.search_status import SearchStatus, TrialSummary
from kernel_backend.search.report.history import SearchHistory
from kernel_backend.search.report.status import Page
from kernel_backend.search.settings import settings_of
from kernel_backend.service.search import reader as reading
from kernel_backend.service.search.reader import SearchReader
from kernel_backend.spec.assignments import parse_line
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore
from tests.support.empty_database import empty_database

HERE = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)


class Counting(SqlStore):
    """Store that records which trials were read (None: all), and from which entries on the log was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[Collection[int] | None] = []
        self.logs: list[int] = []

    def brief_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry | LoggedReport]:
        self.logs.append(after)
        return super().brief_log(number, after, limit)

    def outlines(self, number: int, trials: Collection[int] | None = None) -> list[TrialSummary]:
        self.read.append(trials)
        return super().outlines(number, trials)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(empty_database(tmp_path / "trials.db"))


class Run:
    """Search in a store, to which a test adds events one after another."""

    def __init__(self, store: SqlStore) -> None:
        self.store, self.entries, self.reports = store, 0, 0
        config = Config(epochs=9, search=Search(method="random", trials=100))
        fields: dict[str, Any] = {"owner": "a", "group": "a", "snapshot": "0" * 64, "python": "python", "cwd": "/"}
        space = parse_line(["lr=0..1"]).space
        self.experiment: Experiment
        self.experiment, _ = store.add_experiment(NewExperiment(config=config, params={}, space=space, **fields), 1.0)
        self.trials: list[AttemptId] = []

    def begin(self) -> None:
        """Start another trial."""
        index = len(self.trials) + 1
        made = Create(trial=index, params={"lr": 1 / index}, until=9)
        self._log(Vacancy(), made, [Added(index, {"lr": 1 / index}, until=9)])
        self.trials.append(self.store.add_attempt(1, index, HERE, None, "", at=2.0).id)

    def report(self, key: AttemptId, unit: int, value: float) -> None:
        """Report a trial's value after a unit to the search."""
        self.reports += 1
        told = Report(number=self.reports, at=3.0, kind="validation", step=unit, epoch=unit, metrics={"loss": value})
        self.store.accept(key, [told], at=3.0)
        decision = Continue(until=9 + unit) if unit % 2 else None
        self._log(Reported(trial=key.trial, unit=unit, value=value), decision, [])

    def end(self, key: AttemptId) -> None:
        """End a trial that its search abandons."""
        self.store.advance_trial(1, key.trial, e.Prune(), at=4.0)
        self.store.advance_attempt(key, e.Ended(), at=5.0, outcome=Outcome.RELEASED)

    def _log(self, event: Any, decision: Any, effects: list[Any]) -> None:
        self.entries += 1
        entry = LogEntry(number=self.entries, at=2.0, event=event, decision=decision)
        self.store.record(1, [entry], effects, at=2.0)


def outcome(store: SqlStore) -> Any:
    """Return the history from the complete log, and from its brief form."""
    config = store.experiment(1).config
    whole, brief = (SearchHistory(settings_of(config), store.experiment(1).space, 1.0) for _ in range(2))
    whole.take(store.search_log(1))
    brief.take_brief(store.brief_log(1))
    return tuple(
        (repr(each.trials), each.incumbent, each.entries, each.trained, each.diverged) for each in (whole, brief)
    )


def told(reader: SearchReader, experiment: Experiment, sort: str = "best") -> SearchStatus:
    """Return the status without values that depend on the clock while trials hold slots."""
    page = Page(sort=sort, limit=200)
    found = asyncio.run(reader.status(experiment, settings_of(experiment.config), page))
    rows = tuple(row.model_copy(update={"seconds": float(row.seconds > 0)}) for row in found.trials)
    best = found.best and found.best.model_copy(update={"seconds": 1.0})
    return found.model_copy(update={"elapsed": 0.0, "spent": 0.0, "trials": rows, "best": best})


def test_a_reader_that_follows_is_told_what_a_new_one_is(store: Counting) -> None:
    run, reader, draw = Run(store), SearchReader(store), random.Random(3)
    units: dict[AttemptId, int] = {}
    for turn in range(60):
        active = [key for key in run.trials if key in units]
        match draw.choice(["begin", "report", "report", "report", "end"]) if len(active) > 1 else "begin":
            case "begin":
                run.begin()
                units[run.trials[-1]] = 0
            case "report":
                key = draw.choice(active)
                units[key] += 1
                run.report(key, units[key], draw.random())
            case "end":
                run.end(draw.choice(active))
                units = {key: unit for key, unit in units.items() if store.attempt(key).ended_at is None}
        if turn % 3 == 0:
            sort = draw.choice(["best", "-best", "trial", "lr", "unit"])
            assert told(reader, run.experiment, sort) == told(SearchReader(store), run.experiment, sort)


def test_the_brief_log_makes_the_same_history(store: Counting) -> None:
    run = Run(store)
    for _ in range(3):
        run.begin()
    for key, unit, value in ((0, 1, 0.5), (1, 1, math.nan), (2, 1, math.inf), (0, 2, 0.25), (1, 2, 1.0), (0, 2, 0.1)):
        run.report(run.trials[key], unit, value)
    whole, brief = outcome(store)
    assert whole == brief
    assert brief[-1] == {3}


def test_only_trials_that_have_changed_are_read_again(store: Counting) -> None:
    run, reader = Run(store), SearchReader(store)
    for _ in range(5):
        run.begin()
    told(reader, run.experiment)
    told(reader, run.experiment)
    assert store.read == [None]
    run.report(run.trials[2], 1, 0.5)
    found = told(reader, run.experiment)
    assert store.read == [None, {3}]
    assert found.best is not None
    assert found.best.trial == 3


def test_where_very_many_have_changed_all_are_read(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FEW", 2)
    run, reader = Run(store), SearchReader(store)
    for _ in range(4):
        run.begin()
    told(reader, run.experiment)
    for key in run.trials[:3]:
        run.report(key, 1, 0.5)
    assert told(reader, run.experiment) == told(SearchReader(store), run.experiment)
    assert store.read[1] is None


def test_a_reader_of_a_later_service_continues_from_what_was_stored(
    store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "GROWN", 4)
    run = Run(store)
    for _ in range(3):
        run.begin()
    run.report(run.trials[1], 1, math.nan)
    first = SearchReader(store)
    told(first, run.experiment)
    assert store.search_history(1) is None  # nobody waits for it
    asyncio.run(first.store_grown())  # four entries
    run.report(run.trials[1], 2, 0.5)
    store.logs.clear()
    store.read.clear()
    later = told(SearchReader(store), run.experiment)
    assert (store.logs[0], store.read) == (4, [{2}])
    monkeypatch.setattr(store, "search_history", lambda number: None)
    assert later == told(SearchReader(store), run.experiment)


def test_a_search_that_nobody_looks_at_is_stored_as_it_grows(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "GROWN", 3)
    run, reader = Run(store), SearchReader(store)
    found = []
    for _ in range(6):
        run.begin()
        asyncio.run(reader.keep_up([run.experiment]))
        asyncio.run(reader.store_grown())
        found.append(store.search_history(1))
    assert found[:2] == [None, None]
    assert found[2] == found[3] == found[4] != found[5]
