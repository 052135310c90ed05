"""Test searches over a store, without trainings: the reports that they process, what they read, what they leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.model import events as e
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.reports import Report
from kernel_backend.model.resources import Share
from kernel_backend.model.search.records import Exited
from kernel_backend.model.trial import Attempt
from kernel_backend.service.search.followed import FollowedCheckpoints
from kernel_backend.service.search.runner import SAID, Searches
from kernel_backend.spec.assignments import parse_line
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore
from tests.support.empty_database import empty_database

HERE = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)


class Mine:
    """Custom search class that answers once a test allows it."""

    def __init__(self) -> None:
        self.may, self.asked, self.closed, self.answer = threading.Event(), threading.Event(), False, "x" * 10_000
        self.may.set()

    def interval(self) -> Any:
        return 1

    def ask(self, trial: int) -> Any:
        self.asked.set()
        self.may.wait()
        return self.answer

    def tell(self, trial: int, params: dict[str, Any], unit: int, value: float) -> Any:
        return None

    def close(self) -> None:
        self.closed = True


class World:
    """Store with one search."""

    def __init__(self, folder: Path, **search: Any) -> None:
        self.store, self.mine, self.made = SqlStore(empty_database(folder / "trials.db")), Mine(), list[Mine]()
        followed = FollowedCheckpoints(self.store, CheckpointStorage("/nowhere"))
        self.searches = Searches(self.store, self._process, followed)
        metric = {"name": "error", "mode": "min"}
        config = Config.model_validate({"epochs": 4, "slots": 1, "metric": metric, "search": search})
        space = parse_line(["lr=1e-4..1e-1:log"]).space
        fields = {"name": "", "owner": "ada", "group": "ada", "snapshot": "0" * 64, "python": "python", "cwd": "/"}
        self.experiment, _ = self.store.add_experiment(
            NewExperiment(config=config, params={}, space=space, **fields), 1.0
        )

    def _process(self, experiment: Experiment) -> Mine:
        self.made.append(self.mine)
        return self.mine

    def begin(self) -> Attempt:
        trial = self.searches.on_slot(self.experiment)
        assert trial is not None
        return self.store.add_attempt(1, trial.index, HERE, None, "digest", 2.0)

    def report(self, attempt: Attempt, epoch: int) -> None:
        metrics = {"error": 0.5}
        report = Report(number=epoch, at=3.0, kind="validation", step=epoch, epoch=epoch, metrics=metrics)
        self.store.accept(attempt.id, [report], 3.0)

    def stop(self) -> None:
        self.store.advance_experiment(1, e.Stop(), 4.0)
        self.store.advance_experiment(1, e.Ended(), 4.0)
        self.searches.forget(1)

    def settle(self) -> None:
        """Wait for the thread that works on the search."""
        for thread in threading.enumerate():
            if thread.name == "search-1":
                thread.join()


@pytest.fixture
def random(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, method="random", trials=9)
    yield world
    world.store.close()


@pytest.fixture
def custom(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, method="custom", source="Mine", trials=9)
    yield world
    world.mine.may.set()
    world.settle()
    world.store.close()


def test_a_failure_is_heard_while_another_trial_has_all_its_reports_and_has_not_ended(random: World) -> None:
    done, failing = random.begin(), random.begin()
    random.report(done, 4)
    assert random.searches.take_news(random.experiment)
    random.store.advance_trial(1, failing.trial, e.Errored(retries_left=False), 4.0)
    assert random.searches.take_news(random.experiment)
    assert random.store.search_log(1)[-1].event == Exited(trial=failing.trial, reason="failed")


def test_trials_are_looked_at_only_when_another_one_has_ended(random: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = random.begin(), random.begin()
    random.report(first, 4)
    random.searches.take_news(random.experiment)
    random.store.advance_trial(1, first.trial, e.Finished(), 4.0)
    random.searches.take_news(random.experiment)

    def unexpected(*arguments: Any) -> None:
        raise AssertionError("all trials are read")

    monkeypatch.setattr(random.store, "trials", unexpected)
    monkeypatch.setattr(random.store, "outlines", unexpected)
    assert not random.searches.take_news(random.experiment)
    random.report(random.begin(), 4)  # ends by what is decided on it, and takes its time to leave
    assert random.searches.take_news(random.experiment)


def test_of_a_search_that_has_ended_nothing_is_made_again(custom: World) -> None:
    custom.searches.take_news(custom.experiment)
    custom.settle()
    custom.stop()
    custom.searches.take_news(custom.experiment)  # a launcher that says its last words once more
    custom.settle()
    assert len(custom.made) == 1
    assert not custom.searches.over(custom.experiment)
    assert len(custom.made) == 1


def test_an_end_waits_for_no_class_that_thinks(custom: World) -> None:
    custom.mine.may.clear()
    custom.searches.on_slot(custom.experiment)
    assert custom.mine.asked.wait(60)
    custom.stop()  # comes back
    assert not custom.mine.closed
    custom.mine.may.set()
    deadline = time.monotonic() + 60
    while not custom.mine.closed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert custom.mine.closed


def test_a_search_is_made_of_what_the_store_says_and_not_of_what_somebody_read_before(random: World) -> None:
    before, search = random.experiment, random.experiment.config.search
    assert search is not None
    config = before.config.model_copy(update={"search": search.model_copy(update={"trials": 1})})
    random.store.advance_experiment(1, e.Extended(), 2.0, config=config)
    assert random.searches.wants(before) == 1


def test_an_answer_of_any_length_is_told_in_few_words(custom: World) -> None:
    custom.searches.on_slot(custom.experiment)
    custom.settle()
    custom.searches.take_news(custom.experiment)
    custom.settle()
    failed = custom.searches.failed(custom.experiment)
    assert failed is not None
    assert failed.startswith("Mine.ask() answered 'xxx")
    assert len(failed) == SAID
