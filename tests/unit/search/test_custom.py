"""Test a user's search class: valid answers are carried out, invalid ones are reported."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.definition.search_class import check_class
from kernel_backend.errors import Conflict, InvalidDefinition, SearchFailed
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.records import (
    Complete,
    Continue,
    Create,
    Exited,
    Happening,
    LogEntry,
    Pause,
    Promoted,
    Prune,
    Reported,
    Resume,
    Settings,
    Vacancy,
)
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.search.custom import Custom
from kernel_backend.search.log import apply_event, replay
from kernel_backend.search.simulation.problems import Trained
from kernel_backend.search.simulation.simulate import simulate
from kernel_backend.service.search.custom_process import FailedSearchProcess
from kernel_backend.spec.assignments import parse_line

SPACE = Space(
    parameters=(
        Parameter(name="lr", domain=Range(low=1e-4, high=1e-1, scale="log")),
        Parameter(name="opt", domain=Choices(values=("sgd", "adam"))),
        Parameter(name="momentum", domain=Range(low=0, high=0.99), when=When(name="opt", values=("sgd",))),
    )
)
PARAMS: dict[str, Value] = {"lr": 1e-2, "opt": "adam"}


class Halving:
    """Search class as a user may write it: of two trials per round, the better one continues."""

    interval: int | None = 2

    def __init__(self) -> None:
        self.told: list[tuple[int, int, float]] = []
        self.asked: list[int] = []

    def ask(self, trial: int) -> Any:
        self.asked.append(trial)
        return PARAMS | {"lr": 1e-4 * trial}

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        self.told.append((trial, unit, value))
        best = min(value for _, at, value in self.told if at == unit)
        return None if value == best else "stop"


class Here:
    """Client that calls the class directly, without a process."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def interval(self) -> Any:
        return getattr(self.of, "interval", None)

    def ask(self, trial: int) -> Any:
        return self.of.ask(trial)

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        return self.of.tell(trial, params, unit, value)


class Says:
    """Search class that returns prepared answers."""

    def __init__(self, ask: Any = PARAMS, tell: Any = None, interval: Any = None) -> None:
        self._ask, self._tell, self.interval = ask, tell, interval

    def ask(self, trial: int) -> Any:
        if isinstance(self._ask, Exception):
            raise self._ask
        return self._ask

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        if isinstance(self._tell, Exception):
            raise self._tell
        return self._tell


def custom(of: Any, units: int = 6, space: Space = SPACE, **asked: object) -> Custom:
    return Custom(settings(units, **asked), space, Here(of))


def settings(units: int = 6, **asked: object) -> Settings:
    return Settings.model_validate({"method": "custom", "source": "Mine", "units": units, "trials": 4} | asked)


def test_its_trials_train_to_the_ends_of_intervals_and_are_judged_there() -> None:
    search = custom(Halving())
    assert search.wants() == 4
    first, second = search.on_slot(), search.on_slot()
    assert first == Create(trial=1, params=PARAMS | {"lr": 1e-4}, until=2)
    assert second == Create(trial=2, params=PARAMS | {"lr": 2e-4}, until=2)
    assert search.on_report(1, 1, 0.5) == Continue(until=2)
    assert search.on_report(1, 2, 0.4) == Continue(until=4)
    assert search.on_report(2, 2, 0.6) == Prune()
    assert search.on_report(1, 6, 0.1) == Complete()


def test_without_an_interval_they_train_to_the_end() -> None:
    search = custom(Says())
    assert search.on_slot() == Create(trial=1, params=PARAMS, until=6)
    assert [search.on_report(1, unit, 0.5) for unit in (1, 5, 6)] == [Continue(until=6)] * 2 + [Complete()]


def test_a_verdict_before_the_end_of_an_interval_waits_for_it() -> None:
    mine = Says(tell="stop", interval=3)
    search = custom(mine)
    search.on_slot()
    assert search.on_report(1, 1, 0.5) == Continue(until=3)
    mine._tell = None
    assert search.on_report(1, 3, 0.5) == Prune()


def test_a_paused_trial_goes_on_when_its_number_is_answered() -> None:
    mine = Says(tell="pause", interval=2)
    search = custom(mine)
    search.on_slot()
    assert search.on_report(1, 2, 0.5) == Pause()
    mine._ask = 1
    assert search.on_slot() == Resume(trial=1, until=4)
    mine._tell = None
    assert search.on_report(1, 4, 0.4) == Continue(until=6)


def test_nothing_now_is_asked_again_after_the_next_report_and_over_when_nothing_trains() -> None:
    mine = Says()
    search = custom(mine, trials=2)
    search.on_slot()
    mine._ask = None
    assert search.on_slot() is None
    assert search.wants() == 0
    assert not search.over()
    search.on_report(1, 1, 0.5)
    assert search.wants() == 1
    assert search.on_slot() is None
    search.on_exit(1, "pruned")
    assert search.on_slot() is None
    assert search.over()


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (Says(ask="adam"), "Mine.ask() answered 'adam': it answers with a dictionary of hyperparameters"),
        (Says(ask=True), "Mine.ask() answered True: it answers with"),
        (Says(ask=PARAMS | {"lrr": 1.0}), "lrr, which is no hyperparameter of this search (did you mean lr?)"),
        (Says(ask=PARAMS | {"lr": 2.0}), "lr=2.0 lies outside of 0.0001..0.1:log"),
        (Says(ask=PARAMS | {"lr": "high"}), "lr='high' lies outside"),
        (Says(ask={"lr": 1e-2, "opt": "sgd"}), "momentum is missing"),
        (Says(ask=7), "trial 7 is not paused (none are)"),
        (Says(interval=0), "Mine.interval is 0"),
        (Says(interval="two"), "Mine.interval is 'two'"),
        (Says(ask=SearchFailed("Mine.ask() raised KeyError")), "raised KeyError"),
    ],
)
def test_an_answer_that_is_none_ends_the_search_and_is_told(says: Says, words: str) -> None:
    search = custom(says)
    assert search.on_slot() is None
    assert search.failure is not None
    assert words in search.failure.message
    assert search.over()


@pytest.mark.parametrize(
    ("tell", "interval", "words"),
    [
        ("go", 1, "Mine.tell() answered 'go': it answers with 'pause', 'stop' or None"),
        ("stop", None, "write interval = 1 into the class"),
        (SearchFailed("Mine.tell() raised KeyError"), 1, "raised KeyError"),
    ],
)
def test_when_the_class_fails_the_others_train_to_their_targets_and_it_is_over(
    tell: Any, interval: int | None, words: str
) -> None:
    mine = Says(interval=interval)
    search = custom(mine, units=2)
    search.on_slot()
    search.on_slot()
    mine._tell = tell
    search.on_report(1, 1, 0.5)
    assert search.failure is not None
    assert words in search.failure.message
    assert search.wants() == 0
    assert search.on_report(2, 1, 0.5) == (Pause() if interval else Continue(until=2))
    if not interval:
        assert [search.on_report(trial, 2, 0.5) for trial in (1, 2)] == [Complete()] * 2
    assert search.over()


def test_failed_trials_are_told_as_nan_and_invalid_ones_not_at_all() -> None:
    mine = Halving()
    search = custom(mine, trials=2)
    search.on_slot()
    search.on_exit(1, "invalid")
    assert search.wants() == 2
    search.on_slot()
    search.on_exit(2, "failed")
    ((trial, unit, value),) = mine.told
    assert (trial, unit) == (2, 2)
    assert math.isnan(value)
    assert search.wants() == 1


def test_a_class_whose_trials_are_all_invalid_comes_to_an_end() -> None:
    search = custom(Says(), trials=None)
    for trial in range(1, 101):
        assert isinstance(search.on_slot(), Create)
        search.on_exit(trial, "invalid")
    assert search.over()


def test_a_report_counts_once() -> None:
    mine = Halving()
    search = custom(mine)
    search.on_slot()
    search.on_report(1, 2, 0.5)
    assert search.on_report(1, 2, 0.1) == Continue(until=4)
    assert search.on_report(1, 1, 0.1) == Continue(until=4)
    assert mine.told == [(1, 2, 0.5)]


def test_results_of_other_searches_are_told() -> None:
    mine = Halving()
    search = custom(mine)
    search.told(0, PARAMS)
    search.on_report(0, 6, 0.25)
    assert mine.told == [(0, 6, 0.25)]


def test_by_hand_it_is_promoted_extended_and_closed() -> None:
    mine = Says(tell="stop", interval=2)
    search = custom(mine, trials=2)
    search.on_slot()
    search.promote(1)
    assert search.wants() == 1  # it trains: its slot is its own
    assert search.on_report(1, 2, 0.5) == Continue(until=4)
    assert search.on_report(1, 4, 0.5) == Prune()
    with pytest.raises(Conflict, match="trial 1 has ended"):
        search.promote(1)
    with pytest.raises(Conflict, match="0 trials requested, and there are 1"):
        search.extend(0)
    search.extend(3)
    assert search.wants() == 2
    search.on_slot()
    search.close()
    assert search.on_report(2, 1, 0.5) == Pause()
    assert search.on_report(2, 2, 0.5) == Prune()  # it came to the end of its interval all the same
    assert search.over()


def test_with_an_empty_space_the_names_are_the_cells_business() -> None:
    search = custom(Says(ask={"anything": 3}), space=Space())
    assert search.on_slot() == Create(trial=1, params={"anything": 3}, until=6)


def test_after_a_restart_at_any_event_the_class_is_told_all_again_and_asked_for_nothing_twice() -> None:
    def events() -> list[Happening]:
        reports = [Reported(trial=t, unit=u, value=abs(t - 3) / 10 + 1 / u) for u in range(1, 7) for t in (1, 2, 3)]
        return [Vacancy()] * 3 + reports[:7] + [Exited(trial=2, reason="failed"), Vacancy()] + reports[7:]

    first = Halving()
    search = custom(first)
    log = [
        LogEntry(number=number, at=0.0, event=event, decision=apply_event(search, event))
        for number, event in enumerate(events(), 1)
    ]
    assert any(isinstance(entry.decision, Prune) for entry in log)
    for cut in range(len(log)):
        mine = Halving()
        again = custom(mine)
        replay(again, log[:cut])
        assert mine.asked == []
        for entry in log[cut:]:
            assert apply_event(again, entry.event) == entry.decision
        assert repr(mine.told) == repr(first.told)


def test_a_class_that_is_of_another_mind_after_a_restart_changes_nothing_of_before() -> None:
    stops, goes = Says(tell="stop", interval=2), Says(interval=2)
    search = custom(stops)
    log = [
        LogEntry(number=number, at=0.0, event=event, decision=apply_event(search, event))
        for number, event in enumerate([Vacancy(), Reported(trial=1, unit=2, value=0.5)], 1)
    ]
    again = custom(goes)
    replay(again, log)
    assert again.on_report(1, 2, 0.5) == Prune()
    assert again.wants() == 3
    kept = [log[0], log[1].model_copy(update={"decision": Continue(until=4)})]
    for mind in (Says(tell="stop", interval=2), Says(tell="pause", interval=2)):
        again = custom(mind)
        replay(again, kept)
        assert again.on_report(1, 3, 0.5) == Continue(until=4)
        assert again.wants() == 3


def test_a_class_that_has_failed_is_replayed_although_it_says_nothing_any_more() -> None:
    search = custom(Says(interval=2))
    events: list[Happening] = [Vacancy(), Promoted(trial=1), Reported(trial=1, unit=2, value=0.5)]
    log = [
        LogEntry(number=number, at=0.0, event=event, decision=apply_event(search, event))
        for number, event in enumerate(events, 1)
    ]
    silent = Custom(settings(), SPACE, FailedSearchProcess("it raised KeyError"))
    replay(silent, log)
    assert silent.failure is not None
    assert silent.on_report(1, 2, 0.5) == Continue(until=4)


CELL = """\
class Mine:
    def ask(self, trial): ...
    def tell(self, trial, params, unit, value): ...

class Half:
    def ask(self, trial): ...

class Child(Half): ...

from mine import Other
"""


@pytest.mark.parametrize("name", ["Mine", "Child", "Other"])
def test_a_class_that_can_be_asked_and_told_is_taken(name: str) -> None:
    check_class(CELL, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Mein", r"the cell has no class Mein \(did you mean Mine\?\); its classes: Mine, Half, Child"),
        ("Half", r"Half \(line 5\) has no tell\(\)\. Write for example"),
    ],
)
def test_a_class_that_cannot_is_refused_before_anything_runs(name: str, words: str) -> None:
    with pytest.raises(InvalidDefinition, match=words):
        check_class(CELL, name)


def test_the_example_of_the_documentation_searches() -> None:
    text = (Path(__file__).parents[3] / "docs" / "guides" / "custom-search.md").read_text()
    (cell,) = re.findall(r"```python\n(%%dlsubmit --search custom.*?)```", text, re.DOTALL)
    line, _, source = cell.partition("\n")
    check_class(source, "Halving")
    space = parse_line([token for token in line.split() if "=" in token]).space
    settings = Settings(method="custom", source="Halving", units=9, trials=32, mode="max")
    made: dict[str, Any] = {}
    exec(source, made)
    search = Custom(settings, space, Here(made["Halving"](space, settings)))
    trace = simulate(search, Trained(9), workers=4, mode="max")
    assert search.failure is None
    assert len(trace.trials) == 32
    assert {trial.state for trial in trace.trials.values()} == {"completed", "pruned"}
