"""Test population-based training: which trials are copied, replaced or trained next, and the replay of logs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import Conflict
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Domain, Range
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume, Settings
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.search.encoding import Encoder, codec
from kernel_backend.search.observations import Observations
from kernel_backend.search.pbt import Pbt, shifted
from kernel_backend.search.samplers.base import RandomSampler
from kernel_backend.search.simulation.simulate import simulate

SPACE = Space(
    parameters=(
        Parameter(name="lr", domain=Range(low=1e-4, high=1e-1, scale="log")),
        Parameter(name="opt", domain=Choices(values=("sgd", "adam", "lion"))),
        Parameter(name="momentum", domain=Range(low=0, high=0.99), when=When(name="opt", values=("sgd",))),
        Parameter(name="blocks", domain=Range(low=1, high=3, whole=True)),
        Parameter(name="width", domain=Range(low=8, high=64, scale="log2", whole=True), each="blocks"),
    )
)


def pbt(space: Space = SPACE, units: int = 20, **asked: object) -> Pbt:
    settings = Settings.model_validate({"method": "pbt", "units": units, "interval": 5, "population": 5} | asked)
    seen = Observations(Encoder(space), settings.mode, [units])
    return Pbt(settings, space, RandomSampler(settings.seed), seen)


def begin(search: Pbt, count: int) -> list[Create]:
    decisions = [search.on_slot() for _ in range(count)]
    assert all(isinstance(decision, Create) for decision in decisions)
    return [decision for decision in decisions if isinstance(decision, Create)]


def test_a_population_begins_with_its_members_and_each_trains_a_round() -> None:
    search = pbt()
    assert search.wants() == 5
    made = begin(search, 5)
    assert [(each.trial, each.until, each.parent) for each in made] == [(n, 5, None) for n in range(1, 6)]
    assert search.wants() == 0
    assert search.on_slot() is None


def test_the_worst_fifth_gives_its_place_to_a_changed_copy_of_the_best_fifth() -> None:
    search = pbt()
    begin(search, 5)
    for trial in (1, 2, 3, 4):
        assert search.on_report(trial, 5, trial / 10) == Continue(until=10)
    assert search.on_report(5, 5, 0.9) == Prune()
    assert search.wants() == 1
    copy = search.on_slot()
    assert isinstance(copy, Create)
    assert (copy.trial, copy.parent, copy.until) == (6, 1, 10)
    assert copy.params != search._seen.params[1]


def test_a_copy_goes_on_from_where_its_parent_is_by_then() -> None:
    search = pbt()
    begin(search, 5)
    for trial in (1, 2, 3, 4, 5):
        search.on_report(trial, 5, trial / 10)
    for unit in (6, 7, 8, 9, 10, 11):
        search.on_report(1, unit, 0.1)
    copy = search.on_slot()
    assert isinstance(copy, Create)
    assert (copy.parent, copy.until) == (1, 15)
    # Its first reports are behind the rounds that it never trained: they are no results of those.
    assert search.on_report(6, 11, 0.0) == Continue(until=15)
    assert 6 not in search._rankings[5]
    assert 6 not in search._rankings[10]


def test_metric_max_is_turned_round() -> None:
    search = pbt(mode="max")
    begin(search, 5)
    said = [search.on_report(trial, 5, trial / 10) for trial in (5, 4, 3, 2, 1)]
    assert said == [Continue(until=10)] * 4 + [Prune()]


def test_of_equal_members_the_youngest_gives_way() -> None:
    search = pbt()
    begin(search, 5)
    said = [search.on_report(trial, 5, 0.5) for trial in (1, 2, 3, 4, 5)]
    assert said == [Continue(until=10)] * 4 + [Prune()]


def test_a_diverged_member_gives_way_as_soon_as_there_is_one_to_copy() -> None:
    search = pbt()
    begin(search, 5)
    assert search.on_report(1, 5, math.nan) == Continue(until=10)
    assert search.on_report(2, 5, 0.4) == Continue(until=10)
    assert search.on_report(3, 5, math.inf) == Prune()
    copy = search.on_slot()
    assert isinstance(copy, Create)
    assert copy.parent == 2
    assert search.on_report(1, 10, math.nan) == Continue(until=15)


def test_whoever_comes_to_the_end_is_complete_and_copied_by_nobody() -> None:
    search = pbt(units=10, population=6)
    begin(search, 6)
    for unit in (5, 10):
        assert search.on_report(1, unit, 0.1) == (Continue(until=10) if unit == 5 else Complete())
    for trial in (2, 3, 4, 5):
        search.on_report(trial, 5, trial / 10)
    # The best of the unit is through; there is nothing left of it to train, so nobody gives way to it.
    assert search.on_report(6, 5, 0.9) == Continue(until=10)


def test_with_fewer_slots_than_members_the_least_trained_goes_on_first() -> None:
    search = pbt(population=3, trials=3)
    begin(search, 1)
    assert search.on_report(1, 5, 0.1) == Pause()
    begin(search, 1)
    assert search.on_report(2, 5, 0.2) == Pause()
    begin(search, 1)
    assert search.on_report(3, 5, 0.3) == Continue(until=10)
    assert search.on_report(3, 10, 0.3) == Pause()
    assert search.on_slot() == Resume(trial=1, until=10)
    assert search.on_slot() == Resume(trial=2, until=10)
    assert search.on_slot() == Resume(trial=3, until=15)


def test_a_paused_member_is_judged_when_its_turn_comes() -> None:
    search = pbt()
    for trial in (1, 2, 3, 4, 5):
        begin(search, 1)
        search.on_report(trial, 5, (6 - trial) / 10)
    copy = search.on_slot()  # trial 1 was the only one that had been there; now it is the worst of five
    assert isinstance(copy, Create)
    assert copy.parent == 5
    assert search.on_report(1, 6, 0.0) == Prune()


def test_a_report_counts_once_and_one_that_comes_late_for_all_that_it_passed() -> None:
    search = pbt()
    begin(search, 5)
    assert search.on_report(1, 11, 0.3) == Continue(until=15)
    assert search.on_report(1, 5, 0.0) == Continue(until=15)
    for unit in (5, 10):
        assert search._rankings[unit].places == [(0.3, 1)]
    assert search.on_report(1, 4, 0.0) == Continue(until=15)


def test_a_failed_member_counts_as_worst_and_a_copy_takes_its_place() -> None:
    search = pbt()
    begin(search, 5)
    for trial in (1, 2):
        search.on_report(trial, 5, trial / 10)
    search.on_report(3, 5, 0.3)
    search.on_exit(3, "failed")
    assert search._rankings[10].places == [(math.inf, 3)]
    copy = search.on_slot()
    assert isinstance(copy, Create)
    assert copy.parent == 1
    search.on_exit(4, "failed")
    anew = search.on_slot()
    assert isinstance(anew, Create)
    assert (anew.parent, anew.until) == (None, 5)


def test_an_invalid_member_never_was() -> None:
    search = pbt(trials=5)
    begin(search, 5)
    search.on_report(1, 5, 0.1)
    search.on_exit(1, "invalid")
    assert search._rankings[5].places == []
    anew = search.on_slot()
    assert isinstance(anew, Create)
    assert (anew.trial, anew.parent, anew.until) == (6, None, 5)
    assert search.wants() == 0


def test_after_an_invalid_member_another_begins_anew_whatever_the_others_have_reached() -> None:
    search = pbt()
    begin(search, 5)
    for trial in (1, 2, 3, 4):
        search.on_report(trial, 5, trial / 10)
    search.on_exit(4, "invalid")
    anew = search.on_slot()
    assert isinstance(anew, Create)
    assert (anew.parent, anew.until) == (None, 5)


def test_a_space_in_which_everything_fails_comes_to_an_end() -> None:
    search = pbt()
    made = 0
    while search.wants():
        decision = search.on_slot()
        assert isinstance(decision, Create)
        made += 1
        assert made < 100
        search.on_exit(decision.trial, "invalid")
    assert search.over()


def test_with_as_many_trials_as_were_asked_for_nobody_gives_way() -> None:
    search = pbt(trials=5)
    begin(search, 5)
    assert [search.on_report(trial, 5, trial / 10) for trial in range(1, 6)] == [Continue(until=10)] * 5
    for unit in (10, 15, 20):
        said = [search.on_report(trial, unit, trial / 10) for trial in range(1, 6)]
    assert said == [Complete()] * 5
    assert search.over()
    with pytest.raises(Conflict, match="4 trials requested, and there are 5"):
        search.extend(4)
    search.extend(6)
    search.extend(7)
    assert search.wants() == 2
    assert [each.parent for each in begin(search, 2)] == [None, None]
    for trial in (6, 7):
        search.on_report(trial, 20, 0.5)
    assert search.over()
    search.extend(None)  # as many as a new budget allows: another population
    assert search.wants() == 5


def test_by_hand_a_bad_member_goes_on() -> None:
    search = pbt()
    begin(search, 5)
    for trial in (1, 2, 3, 4):
        search.on_report(trial, 5, trial / 10)
    search.promote(5)
    assert search.on_report(5, 5, 0.9) == Continue(until=10)
    search.on_report(5, 10, 0.9)
    with pytest.raises(Conflict, match="trial 9 is none of this search"):
        search.promote(9)


def test_closed_it_pauses_whoever_trains_and_goes_on_when_it_is_extended() -> None:
    search = pbt()
    begin(search, 5)
    search.on_report(1, 3, 0.1)
    search.close()
    assert search.on_report(1, 5, 0.1) == Pause()
    assert search.over()
    search.extend(None)
    assert search.wants() == 5
    assert search.on_slot() == Resume(trial=2, until=5)


def test_closed_within_a_round_it_goes_on_unjudged_and_first() -> None:
    search = pbt()
    begin(search, 5)
    for trial in (1, 2, 3, 4):
        search.on_report(trial, 5, trial / 10)
    search.promote(5)
    assert search.on_report(5, 5, 0.9) == Continue(until=10)
    search.on_report(5, 7, 0.9)
    search.close()
    search.extend(None)
    assert [search.on_slot() for _ in range(5)] == [Resume(trial=trial, until=10) for trial in range(1, 6)]


def test_the_same_events_make_the_same_decisions_after_a_restart_at_any_of_them() -> None:
    """A second search gets the first one's decisions up to any event, and then makes the same decisions itself."""
    steps: list[tuple[str, tuple[object, ...]]] = []
    search, trained, running = pbt(population=6, trials=14, seed=3), dict[int, int](), list[int]()
    log: list[tuple[str, tuple[object, ...], object]] = []

    def happen(on: Pbt, name: str, arguments: tuple[object, ...]) -> object:
        return getattr(on, name)(*arguments)

    for turn in range(200):
        if search.over():
            break
        if len(running) < 3 and search.wants():
            steps.append(("on_slot", ()))
        else:
            trial = running[turn % len(running)]
            trained[trial] += 1
            value = (trial * 7919 % 97) / 97 / trained[trial]
            failing = turn % 31 == 30
            steps.append(("on_exit", (trial, "failed")) if failing else ("on_report", (trial, trained[trial], value)))
        name, arguments = steps[-1]
        decision = happen(search, name, arguments)
        log.append((name, arguments, decision))
        if isinstance(decision, Create):
            running.append(decision.trial)
            trained[decision.trial] = trained[decision.parent] // 5 * 5 if decision.parent else 0
        elif isinstance(decision, Resume):
            running.append(decision.trial)
        elif name != "on_slot" and not isinstance(decision, Continue):
            running.remove(arguments[0])  # type: ignore[arg-type]
    assert search.over()
    assert any(isinstance(decision, Create) and decision.parent for *_, decision in log)
    assert any(isinstance(decision, Resume) for *_, decision in log)
    for cut in range(len(log)):
        again = pbt(population=6, trials=14, seed=3)
        for name, arguments, decision in log[:cut]:
            if name != "on_slot":
                happen(again, name, arguments)
            elif isinstance(decision, Create | Resume):
                again.granted(decision)
        for name, arguments, decision in log[cut : cut + 12]:
            assert happen(again, name, arguments) == decision


DOMAINS = st.one_of(
    st.lists(st.integers(), min_size=2, max_size=5, unique=True).map(lambda values: Choices(values=tuple(values))),
    st.tuples(st.integers(-50, 50), st.integers(1, 100)).map(
        lambda ends: Range(low=ends[0], high=ends[0] + ends[1], whole=True)
    ),
    st.tuples(st.integers(1, 50), st.integers(1, 1000)).map(
        lambda ends: Range(low=ends[0], high=ends[0] + ends[1], whole=True, scale="log")
    ),
    st.tuples(st.floats(-5, 5), st.floats(0.1, 5)).map(lambda ends: Range(low=ends[0], high=ends[0] + ends[1])),
    st.tuples(st.floats(1e-6, 1), st.floats(2, 1e4)).map(
        lambda ends: Range(low=ends[0], high=ends[0] * ends[1], scale="log")
    ),
    st.just(Range(low=8, high=256, scale="log2", whole=True)),
)


@given(DOMAINS, st.floats(0, 1), st.booleans())
def test_a_shift_changes_a_value_a_little_and_stays_inside(domain: Domain, at: float, up: bool) -> None:
    value, _ = codec(domain)
    before, after = value(at), value(shifted(domain, at, up))
    assert domain.holds(after)
    if isinstance(domain, Choices):
        assert abs(domain.values.index(after) - domain.values.index(before)) == 1
        return
    assert isinstance(before, int | float)
    assert isinstance(after, int | float)
    if domain.scale == "log2":
        assert after == min(max(before * 2 if up else before / 2, 8), 256)
    elif domain.whole:
        assert abs(after - before) <= max(1, abs(before) * 0.2 + 0.5)
        assert after != before or before in (domain.low, domain.high)
    else:
        assert after == pytest.approx(min(max(before * (1.2 if up else 0.8), domain.low), domain.high))


@given(st.integers(0, 200))
def test_a_copy_has_hyperparameters_of_the_space_conditions_and_blocks_included(seed: int) -> None:
    search = pbt(seed=seed)
    begin(search, 5)
    for trial in (1, 2, 3, 4, 5):
        search.on_report(trial, 5, trial / 10)
    copy = search.on_slot()
    assert isinstance(copy, Create)
    Encoder(SPACE).encode(copy.params)
    assert ("momentum" in copy.params) == (copy.params["opt"] == "sgd")


class Hill:
    """Problem from the paper's figure 2: a trial improves along one axis only, and the optimum needs both."""

    units = 100

    def __init__(self) -> None:
        self._at: dict[int, list[float]] = {}
        self._axis: dict[int, int] = {}

    def begin(self, trial: int, params: Mapping[str, Value], parent: int | None) -> dict[str, Value]:
        self._at[trial] = [0.9, 0.9] if parent is None else list(self._at[parent])
        self._axis[trial] = ["x", "y"].index(str(params["axis"]))
        return dict(params)

    def value(self, trial: int, unit: int) -> float:
        self._at[trial][self._axis[trial]] *= 0.95
        return 1.2 - sum(each**2 for each in self._at[trial])

    def seconds(self, trial: int) -> float:
        return 1.0


@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize("population", [3, 8])
def test_copying_reaches_what_no_member_reaches_alone(workers: int, population: int) -> None:
    space = Space(parameters=(Parameter(name="axis", domain=Choices(values=("x", "y"))),))

    def best(**asked: object) -> float:
        search = pbt(space, units=100, mode="max", population=population, **asked)
        trace = simulate(search, Hill(), workers, mode="max")
        assert search.over()
        assert trace.utilisation > 0.8 or workers > population
        return float(trace.values.max())

    assert best(trials=population) < 1.2 - 0.9**2
    assert best() > 0.7
