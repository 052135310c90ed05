"""Test properties of every search under random histories, in which events are late or come twice."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from kernel_backend.errors import Conflict
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices
from kernel_backend.model.search.records import Complete, Continue, Create, Prune, Resume, Vacancy, Verdict
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search import make
from kernel_backend.search.base import Searcher
from kernel_backend.search.custom import Custom
from kernel_backend.search.log import apply_event, fold
from tests.support.search_builders import SPACE, Logged, settings

UNITS = 16
PARAMS: dict[str, Value] = {"lr": 1e-2, "width": 64, "opt": "adam"}
GRID = Space(parameters=(Parameter(name="opt", domain=Choices(values=tuple("abcdefgh"))),))
METHODS: list[dict[str, Any]] = [
    {},
    {"trials": 5},
    {"trials": None, "budget": 1.0, "mode": "max"},
    {"stopping": True},
    {"sampler": "kde", "brackets": "conservative", "eta": 2},
    {"method": "hyperband", "trials": None, "eta": 2},
    {"method": "random", "trials": 6},
    {"method": "grid", "trials": None, "sampler": None},
    {"method": "pbt", "trials": None, "population": 3, "interval": 5},
    {"method": "pbt", "trials": 9, "population": 6, "interval": 2},
    {"method": "custom", "trials": 6, "sampler": None},
]


class Mine:
    """Client whose answers depend only on its calls: it pauses and stops trials, and never resumes them by itself."""

    def interval(self) -> Any:
        return 4

    def ask(self, trial: int) -> Any:
        return PARAMS

    def tell(self, trial: int, params: dict[str, Value], unit: int, value: float) -> Any:
        return {0.1: None, 0.2: "pause", 0.3: None}.get(value, "stop")


def made(asked: dict[str, Any]) -> Searcher:
    return make(settings(units=UNITS, **asked), GRID if asked.get("method") == "grid" else SPACE, Mine())


def folded(asked: dict[str, Any], log: Any) -> Searcher:
    return fold(settings(units=UNITS, **asked), GRID if asked.get("method") == "grid" else SPACE, log, Mine())


class Watched:
    """Search that is compared with the state of its trials according to its answers: training, paused or ended."""

    def __init__(self, search: Searcher) -> None:
        self.search = Logged(search)
        self.until: dict[int, int] = {}  # of all
        self.reached: dict[int, int] = {}
        self.trains, self.ended = set[int](), set[int]()
        self.closed = False
        self.newest = 0

    def vacancy(self) -> None:
        wanted = self.search.wants()
        decision = self.search.on_slot()
        if decision is None:  # a class may have nothing although it is asked
            assert wanted == 0 or isinstance(self.search.inner, Custom)
            return
        assert wanted > 0
        assert not self.closed
        if isinstance(decision, Create):
            assert decision.trial == self.newest + 1
            self.newest = decision.trial
            # A copy goes on from where its parent was at the end of a round.
            self.reached[decision.trial] = self.reached[decision.parent] if decision.parent else 0
        else:
            assert decision.trial not in self.trains | self.ended
            assert decision.until > self.reached[decision.trial]
        self.trains.add(decision.trial)
        self.until[decision.trial] = decision.until

    def report(self, trial: int, unit: int, value: float) -> None:
        verdict = self.search.on_report(trial, unit, value)
        if not 0 < trial <= self.newest:
            assert verdict == (Complete() if trial > 0 else None)
        elif trial in self.ended:
            assert isinstance(verdict, Complete | Prune)
        else:
            self.reached[trial] = max(unit, self.reached[trial])
            self._heard(trial, verdict)

    def _heard(self, trial: int, verdict: Verdict) -> None:
        if isinstance(verdict, Continue):
            assert trial in self.trains
            assert verdict.until > self.reached[trial]
            self.until[trial] = verdict.until
            return
        self.trains.discard(trial)
        if isinstance(verdict, Complete | Prune):
            self.ended.add(trial)
        assert not isinstance(verdict, Complete) or self.reached[trial] >= UNITS

    def exit(self, trial: int, reason: Any) -> None:
        self.search.on_exit(trial, reason)
        if 0 < trial <= self.newest:
            self.trains.discard(trial)
            self.ended.add(trial)

    def told(self, trial: int, params: dict[str, Value]) -> None:
        self.search.told(trial, params)

    def promote(self, trial: int) -> None:
        known = 0 < trial <= self.newest and trial not in self.ended
        with contextlib.nullcontext() if known else pytest.raises(Conflict):
            self.search.promote(trial)

    def extend(self, trials: int | None) -> None:
        with contextlib.suppress(Conflict):
            self.search.extend(trials)
            self.closed = False

    def close(self) -> None:
        self.search.close()
        self.trains.clear()
        self.closed = True
        assert self.search.wants() == 0

    def check(self) -> None:
        assert self.search.wants() >= 0
        assert self.search.over() == (not self.trains and self.search.wants() == 0)


TRIALS = st.integers(-1, 12)
VALUES = st.sampled_from([0.1, 0.2, 0.2, 0.3, 0.5, 0.9, math.nan, math.inf, -math.inf])
ACTS = st.one_of(
    st.just(("vacancy",)),
    st.tuples(st.just("on"), TRIALS, VALUES),  # to its target
    st.tuples(st.just("on"), TRIALS, VALUES),
    st.tuples(st.just("report"), TRIALS, st.integers(1, UNITS + 1), VALUES),  # late, twice, before or beyond it
    st.tuples(st.just("exit"), TRIALS, st.sampled_from(["failed", "invalid", "pruned", "stopped"])),
    st.tuples(st.just("told"), st.integers(-1, 0), st.just(PARAMS)),
    st.tuples(st.just("promote"), TRIALS),
    st.tuples(st.just("extend"), st.sampled_from([None, 3, 8, 12])),
    st.just(("close",)),
)


def happens(watched: Watched, act: tuple[Any, ...]) -> None:
    name, *given = act
    if name == "on":
        trial, value = given
        watched.report(trial, watched.until.get(trial, 1), value)
    else:
        getattr(watched, name)(*given)
    watched.check()


HISTORIES = st.tuples(st.integers(0, 8), st.lists(ACTS, max_size=60))


@pytest.mark.parametrize("asked", METHODS, ids=str)
@given(history=HISTORIES)
@examples(max_examples=40, deadline=None)
def test_a_trial_is_in_one_place_and_no_history_is_too_odd(asked: dict[str, Any], history: Any) -> None:
    watched = Watched(made(asked))
    first, acts = history
    for act in [("vacancy",)] * first + acts:
        happens(watched, act)
    # Nobody who is interrupted between two rungs is forgotten; where trials never pause, nobody at all.
    left = watched.reached.keys() - watched.ended if asked.get("stopping") else watched.trains
    interrupted = {trial for trial in left if watched.reached[trial] < UNITS}
    watched.close()
    watched.extend(None)
    resumed = set()
    for _ in range(len(watched.reached)):
        decision = watched.search.on_slot()
        resumed |= {decision.trial} if isinstance(decision, Resume) else set()
    assert interrupted <= resumed


@pytest.mark.parametrize("asked", METHODS, ids=str)
@given(history=HISTORIES, data=st.data())
@examples(max_examples=25, deadline=None)
def test_every_prefix_of_any_history_gives_the_identical_next_decision(
    asked: dict[str, Any], history: Any, data: st.DataObject
) -> None:
    watched = Watched(made(asked))
    first, acts = history
    for act in [("vacancy",)] * first + acts:
        happens(watched, act)
    log = watched.search.log
    cut = data.draw(st.integers(0, len(log)))
    again = folded(asked, log[:cut])
    for entry in log[cut:]:
        assert apply_event(again, entry.event) == entry.decision, f"entry {entry.number} after {cut}"
    assert apply_event(again, Vacancy()) == watched.search.on_slot()
    assert again.wants() == watched.search.wants()  # by now a class that had nothing was asked again
    assert again.over() == watched.search.over()


@pytest.mark.parametrize("asked", METHODS, ids=str)
def test_who_comes_to_the_end_although_the_search_was_closed_is_complete(asked: dict[str, Any]) -> None:
    search = made(asked)
    search.on_slot()
    search.close()
    assert search.on_report(1, UNITS, 0.5) == Complete()
    search.extend(3)
    decision = search.on_slot()
    assert isinstance(decision, Create)
    assert decision.trial == 2


@pytest.mark.parametrize("asked", METHODS, ids=str)
def test_who_is_interrupted_goes_on_first_and_by_nobody_s_word_beyond_its_target(asked: dict[str, Any]) -> None:
    search = made(asked)
    begun = [decision for _ in range(2) if isinstance(decision := search.on_slot(), Create)]
    search.close()
    search.extend(3)
    for each in begun:
        assert search.on_slot() == Resume(trial=each.trial, until=each.until)
    assert isinstance(search.on_slot(), Create)


@pytest.mark.parametrize("asked", METHODS, ids=str)
def test_when_twenty_in_a_row_fail_before_anybody_reports_no_more_are_made(asked: dict[str, Any]) -> None:
    search = made({**asked, "trials": None} if asked.get("method") != "grid" else asked)
    begun = []
    while isinstance(decision := search.on_slot(), Create):
        begun.append(decision.trial)
        search.on_exit(decision.trial, "failed")
    assert search.over()
    assert len(begun) <= 20


@pytest.mark.parametrize("asked", METHODS, ids=str)
def test_what_was_hopeless_is_tried_again_when_a_person_wants_more(asked: dict[str, Any]) -> None:
    search = made(asked)
    while isinstance(decision := search.on_slot(), Create):
        search.on_exit(decision.trial, "invalid")
    assert search.over()
    search.extend(8)
    assert search.over() == (asked.get("method") == "grid")  # which has no other points
