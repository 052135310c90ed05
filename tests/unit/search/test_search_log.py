"""Test that a search rebuilt from any prefix of its log makes the same next decision."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.model.search.records import LogEntry, Reported, Settings, Vacancy
from kernel_backend.search import make, simulate
from kernel_backend.search.log import apply_event, fold
from kernel_backend.search.simulation.problems import Trained
from tests.support.search_builders import SPACE, Logged, settings

METHODS: list[dict[str, Any]] = [
    {"sampler": "kde"},
    {"sampler": "kde", "stopping": True},
    {"sampler": "kde", "trials": 12},
    {"method": "hyperband", "mode": "max"},
    {"method": "random", "trials": 20, "units": 4},
    {"method": "sobol", "trials": 20, "units": 4},
    {"method": "pbt", "trials": 24, "population": 6, "interval": 2},
    {"method": "tpe", "trials": 24, "units": 4, "sampler": None},
    {"sampler": "cmaes", "trials": 24},
]


def logged(asked: Settings, failures: float = 0.2) -> list[LogEntry]:
    """Return the log of a whole search on three gangs."""
    search = Logged(make(asked, SPACE))
    simulate(search, Trained(asked.units), 3, 1, jitter=0.5, failures=failures)
    return search.log


@pytest.mark.parametrize("asked", METHODS, ids=str)
def test_every_prefix_of_the_log_gives_the_identical_next_decision(asked: dict[str, Any]) -> None:
    log = logged(settings(**asked))
    assert len(log) > 40
    for length in range(0, len(log), max(1, len(log) // 60)):
        search = fold(settings(**asked), SPACE, log[:length])
        for entry in log[length:]:
            assert apply_event(search, entry.event) == entry.decision, f"entry {entry.number} after {length}"
            if entry.number > length + 20:
                break


def test_replaying_asks_no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logged(settings(sampler="kde"))
    monkeypatch.setattr("kernel_backend.search.samplers.kde.KdeSampler.ask", lambda *_: pytest.fail("asked again"))
    search = fold(settings(sampler="kde"), SPACE, log)
    assert search.over()


def test_the_log_travels_as_json() -> None:
    log = logged(settings())
    again = [LogEntry.model_validate_json(entry.model_dump_json()) for entry in log]
    assert again == log


def test_a_value_that_diverged_travels_too() -> None:
    entry = LogEntry(number=1, at=0.0, event=Reported(trial=1, unit=1, value=float("inf")))
    assert LogEntry.model_validate_json(entry.model_dump_json()) == entry


def test_a_vacancy_that_nobody_took_is_replayed_as_such() -> None:
    search = fold(settings(trials=1), SPACE, [LogEntry(number=1, at=0.0, event=Vacancy(), decision=None)])
    assert search.wants() == 1
