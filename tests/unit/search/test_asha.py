"""Test asynchronous successive halving: rungs, promotions, and unusual reports of trials."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import Conflict
from kernel_backend.model.search.domains import Choices
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Resume
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search import make
from kernel_backend.search.brackets import cost, graded, hyperband, with_late_bloomers
from kernel_backend.search.rungs import Rung, rung_units
from tests.support.search_builders import create, searcher, settings

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("units", "eta", "expected"),
    [
        (256, 4, [1, 4, 16, 64, 256]),
        (243, 3, [3, 9, 27, 81, 243]),
        (1000, 10, [1, 10, 100, 1000]),
        (50, 4, [1, 4, 16, 50]),
        (1000, 4, [4, 16, 64, 256, 1000]),
        (2, 4, [1, 2]),
        (1, 4, [1]),
    ],
)
def test_rungs_are_integers_and_none_is_lost(units: int, eta: int, expected: list[int]) -> None:
    assert rung_units(units, eta) == expected


def test_the_first_rung_can_be_chosen() -> None:
    assert rung_units(243, 3, first=1) == [1, 3, 9, 27, 81, 243]
    assert rung_units(100, 4, first=100) == [100]


@given(units=st.integers(1, 10_000), eta=st.integers(2, 10))
def test_there_are_at_most_five_rungs_and_the_last_is_a_whole_training(units: int, eta: int) -> None:
    found = rung_units(units, eta)
    assert found[-1] == units
    assert len(found) <= 5
    assert found == sorted(set(found))


def test_hyperband_has_all_its_brackets() -> None:
    brackets = hyperband(rung_units(81, 3, first=1), 3)
    assert [(len(each.rungs), each.rungs[0].unit, each.weight) for each in brackets] == [
        (5, 1, 81),
        (4, 3, 34),
        (3, 9, 15),
        (2, 27, 8),
        (1, 81, 5),
    ]


def test_modes_have_the_most_aggressive_ladders_or_all() -> None:
    units = [1, 4, 16, 64]
    assert [len(each.rungs) for each in graded(units, 4, "standard")] == [4, 3, 2]
    assert [len(each.rungs) for each in graded(units, 4, "conservative")] == [4, 3, 2, 1]
    assert [each.weight for each in graded(units, 4, "standard")] == [16, 16 / 3, 2]


def test_a_tenth_of_all_training_is_for_late_bloomers() -> None:
    early, late = with_late_bloomers([1, 4, 16, 64], 4)
    assert [rung.unit for rung in late.rungs] == [16, 64]
    spent = [each.weight * cost([rung.unit for rung in each.rungs], 4) for each in (early, late)]
    assert spent[1] / sum(spent) == pytest.approx(0.1)


# Promotion


def test_trials_pause_at_their_rung_and_the_best_goes_on_when_a_slot_frees() -> None:
    search = searcher()
    first, second, third, fourth = create(search, 4)
    assert search.on_report(first, 1, 0.9) == Pause()
    assert search.on_report(second, 1, 0.2) == Pause()
    assert search.on_report(third, 1, 0.5) == Pause()
    assert search.on_report(fourth, 1, 0.7) == Pause()
    assert search.on_slot() == Resume(trial=second, until=4)
    assert isinstance(search.on_slot(), Create)


def test_who_may_go_on_at_once_keeps_its_slots() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial, value in zip(trials[:3], (0.9, 0.8, 0.7), strict=True):
        assert search.on_report(trial, 1, value) == Pause()
    assert search.on_report(trials[3], 1, 0.1) == Continue(until=4)
    assert search.on_report(trials[3], 2, 0.1) == Continue(until=4)


def test_a_trial_that_was_passed_over_goes_on_as_soon_as_its_rank_allows_it() -> None:
    search = searcher()
    trials = create(search, 8)
    values = [0.1, 0.2, 0.9, 0.9, 0.9, 0.9, 0.9]
    for trial, value in zip(trials, values, strict=False):
        search.on_report(trial, 1, value)
    assert search.on_slot() == Resume(trial=trials[0], until=4)
    assert isinstance(search.on_slot(), Create)  # of seven results only one goes on
    search.on_report(trials[7], 1, 0.9)
    assert search.on_slot() == Resume(trial=trials[1], until=4)


def test_the_highest_rung_comes_first() -> None:
    search = searcher()
    trials = create(search, 20)
    for trial in trials[:16]:
        search.on_report(trial, 1, trial / 100)
    for _ in range(3):
        decision = search.on_slot()
        assert isinstance(decision, Resume)
        search.on_report(decision.trial, 4, decision.trial / 100)
    last = search.on_slot()
    assert last == Resume(trial=trials[3], until=4)
    assert search.on_report(trials[3], 4, 0.9) == Pause()
    search.on_report(trials[16], 1, 0.001)  # promoted at once: it is the best of 17
    assert search.on_slot() == Resume(trial=trials[0], until=16)


def test_the_top_is_the_end() -> None:
    search = searcher(units=2)
    trials = create(search, 4)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    assert search.on_slot() == Resume(trial=1, until=2)
    assert search.on_report(1, 2, 0.5) == Complete()
    assert search.on_report(1, 3, 0.5) == Complete()


def test_equal_values_are_a_strict_order() -> None:
    """Equal values are ordered, too: the older trial is the better one."""
    search = searcher()
    for trial in create(search, 8):
        assert search.on_report(trial, 1, 0.5) == Pause()
    assert [search.on_slot() for _ in range(2)] == [Resume(trial=1, until=4), Resume(trial=2, until=4)]
    assert isinstance(search.on_slot(), Create)


def test_a_metric_to_be_maximised_is_turned_round() -> None:
    search = searcher(mode="max")
    trials = create(search, 4)
    for trial, value in zip(trials, (0.5, 0.9, 0.1, 0.3), strict=True):
        search.on_report(trial, 1, value)
    assert search.on_slot() == Resume(trial=trials[1], until=4)


# What trials may say


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_finite_counts_and_never_goes_on(value: float, mode: str) -> None:
    search = searcher(mode=mode)
    trials = create(search, 8)
    for trial in trials[:7]:
        assert search.on_report(trial, 1, value) == Pause()
    assert search.on_report(trials[7], 1, 0.5) == Continue(until=4)  # of eight it is one of the best two
    assert isinstance(search.on_slot(), Create)


def test_reports_beyond_the_target_count_for_every_rung_that_was_passed() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial in trials[:3]:
        search.on_report(trial, 1, 0.9)
    assert search.on_report(trials[3], 5, 0.1) == Pause()  # the only one at rung 4: decided there
    assert isinstance(search.on_slot(), Create)  # the best of rung 1 has gone on from there
    five = searcher()
    for trial in create(five, 5):
        five.on_report(trial, 5, float(trial))
    assert five.on_slot() == Resume(trial=1, until=16)


def test_who_says_more_while_it_leaves_waits_in_its_highest_rung_alone() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    assert search.on_report(trials[0], 4, 9.0) == Pause()
    assert isinstance(search.on_slot(), Create)  # at rung 4 it is the only one, and rung 1 is behind it


def test_the_first_word_for_a_unit_stands() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial, value in zip(trials, (0.1, 0.2, 0.3, 0.4), strict=True):
        search.on_report(trial, 1, value)
    assert search.on_report(trials[3], 1, 0.0) == Pause()
    assert search.on_slot() == Resume(trial=trials[0], until=4)
    assert search.on_report(trials[0], 1, 0.1) == Continue(until=4)  # trained again by a next attempt


def test_a_report_before_the_target_changes_nothing() -> None:
    search = searcher(first_rung=4)
    (trial,) = create(search, 1)
    assert [search.on_report(trial, unit, 0.5) for unit in (1, 2, 3)] == [Continue(until=4)] * 3
    assert search.on_report(trial, 4, 0.5) == Pause()


def test_a_failed_trial_has_the_worst_value_of_its_rung() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial in trials[:3]:
        search.on_report(trial, 1, 0.5)
    assert search.wants() == 60
    search.on_exit(trials[3], "failed")
    assert search.wants() == 61  # it counts, and makes them four: beside 60 new ones the best goes on
    assert search.on_slot() == Resume(trial=trials[0], until=4)


def test_an_invalid_trial_never_was() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial in trials[:3]:
        search.on_report(trial, 1, 0.5)
    search.on_exit(trials[3], "invalid")
    assert search.wants() == 61  # another one takes its place
    decision = search.on_slot()
    assert isinstance(decision, Create)
    assert decision.trial == 5


def test_an_invalid_trial_leaves_all_rungs() -> None:
    search = searcher()
    trials = create(search, 5)
    for trial in trials[:4]:
        search.on_report(trial, 1, float(trial))
    assert search.on_slot() == Resume(trial=trials[0], until=4)
    search.on_exit(trials[0], "invalid")
    assert isinstance(search.on_slot(), Create)  # three results: nobody goes on
    search.on_report(trials[4], 1, 9.0)
    assert search.on_slot() == Resume(trial=trials[1], until=4)


def test_a_space_in_which_nothing_is_valid_ends_the_search() -> None:
    search = searcher(trials=1000)
    for _ in range(100):
        (trial,) = create(search, 1)
        search.on_exit(trial, "invalid")
    assert search.on_slot() is None
    assert search.over()


def test_a_trial_that_was_pruned_by_hand_keeps_its_results_and_never_goes_on() -> None:
    search = searcher()
    trials = create(search, 8)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    search.on_exit(trials[0], "pruned")
    assert search.on_slot() == Resume(trial=trials[1], until=4)
    assert isinstance(search.on_slot(), Create)


# The end


def finish(search, value=lambda trial, unit: trial / 1000) -> list[int]:
    """Run on one slot to the end; return the trials in the order in which they completed."""
    whole = []
    while not search.over():
        decision = search.on_slot()
        verdict = Continue(until=decision.until)
        while isinstance(verdict, Continue):
            verdict = search.on_report(decision.trial, verdict.until, value(decision.trial, verdict.until))
        if verdict == Complete():
            whole.append(decision.trial)
    return whole


def test_a_search_ends_when_all_trials_are_made_and_none_has_earned_more() -> None:
    search = searcher(trials=16)
    assert finish(search) == [1]
    assert search.wants() == 0
    assert search.on_slot() is None


def test_a_search_too_small_for_any_promotion_still_trains_its_best_to_the_end() -> None:
    assert finish(searcher(trials=3)) == [1]


def test_idle_slots_train_the_best_that_were_passed_over_while_others_have_earned_theirs() -> None:
    search = searcher(trials=16)
    trials = create(search, 16)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    on = [search.on_slot() for _ in range(5)]
    assert on == [Resume(trial=trial, until=4) for trial in (1, 2, 3, 4, 5)]  # four have earned it, the fifth fills


def test_a_budget_is_spent_to_the_last_trial() -> None:
    search = searcher(trials=16, budget=1e9)
    assert len(finish(search)) == 16


def test_more_trials_reopen_a_search_that_is_over() -> None:
    search = searcher(trials=4)
    finish(search)
    with pytest.raises(Conflict, match="3 trials requested, and there are 4"):
        search.extend(3)
    search.extend(16)
    assert not search.over()
    assert search.wants() == 12
    finish(search)
    assert search.over()


def test_a_closed_search_wants_nothing_and_its_trials_rest() -> None:
    search = searcher()
    trials = create(search, 2)
    search.close()
    assert search.wants() == 0
    assert search.on_slot() is None
    assert search.over()
    assert search.on_report(trials[0], 1, 0.1) == Pause()
    search.extend(64)
    assert search.wants() == 63  # 62 new ones, and the one that was interrupted


def test_who_trained_when_a_search_was_closed_goes_on_first_when_it_is_extended() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    assert search.on_slot() == Resume(trial=trials[0], until=4)
    assert search.on_report(trials[0], 2, 0.5) == Continue(until=4)
    search.close()
    search.extend(64)
    assert search.on_slot() == Resume(trial=trials[0], until=4)
    assert isinstance(search.on_slot(), Create)


def test_a_person_s_word_for_one_that_trained_when_a_search_was_closed_counts_once() -> None:
    search = searcher()
    (trial,) = create(search, 1)
    search.promote(trial)
    search.close()
    search.extend(64)
    assert search.on_slot() == Resume(trial=trial, until=1)
    assert search.on_report(trial, 1, 9.0) == Pause()
    assert isinstance(search.on_slot(), Create)


def test_who_comes_to_its_rung_after_all_when_a_stopping_search_was_closed_is_judged_and_not_forgotten() -> None:
    search = searcher(stopping=True)
    good, bad = create(search, 2)
    search.close()
    assert search.on_report(good, 1, 0.1) == Pause()
    assert search.on_report(bad, 1, 0.9) == Prune()
    search.extend(64)
    assert search.on_slot() == Resume(trial=good, until=4)


def test_a_whole_training_without_a_result_is_none() -> None:
    search = searcher(trials=3)
    assert finish(search, lambda trial, unit: NAN if (trial, unit) == (1, 16) else trial) == [1, 2]
    failing = searcher(trials=2, units=2)
    for trial in create(failing, 2):
        failing.on_report(trial, 1, float(trial))
    assert failing.on_slot() == Resume(trial=1, until=2)
    failing.on_exit(1, "failed")
    assert failing.on_slot() == Resume(trial=2, until=2)


# By hand


def test_a_person_lets_a_trial_go_on_whatever_its_rank() -> None:
    search = searcher()
    trials = create(search, 4)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    search.promote(trials[3])
    assert search.on_slot() == Resume(trial=trials[3], until=4)
    assert search.on_slot() == Resume(trial=trials[0], until=4)
    assert isinstance(search.on_slot(), Create)


@pytest.mark.parametrize("stopping", [False, True])
def test_a_trial_that_trains_goes_on_beyond_its_rung_when_a_person_wants_it(stopping: bool) -> None:
    search = searcher(stopping=stopping)
    trials = create(search, 2)
    search.on_report(trials[1], 1, 0.1)
    search.promote(trials[0])
    assert search.on_report(trials[0], 1, 9.0) == Continue(until=4)


def test_a_person_s_word_is_not_lost_when_the_trial_says_more_before_it_has_left() -> None:
    search = searcher()
    first, _ = create(search, 2)
    assert search.on_report(first, 1, 0.5) == Pause()
    search.promote(first)
    assert search.on_report(first, 2, 0.5) == Pause()
    assert search.on_slot() == Resume(trial=first, until=4)


def test_who_is_chosen_and_has_earned_it_is_wanted_once() -> None:
    search = searcher(trials=4)
    trials = create(search, 4)
    for trial in trials:
        search.on_report(trial, 1, float(trial))
    search.promote(trials[0])
    assert search.wants() == 1


def test_who_is_promoted_while_training_needs_no_vacancy() -> None:
    search = searcher(trials=2)
    first, _ = create(search, 2)
    search.promote(first)
    assert search.wants() == 0
    assert search.on_slot() is None
    assert search.on_report(first, 1, 9.0) == Continue(until=4)


def test_what_has_ended_is_not_promoted() -> None:
    search = searcher(units=1)
    (trial,) = create(search, 1)
    search.on_report(trial, 1, 0.1)
    with pytest.raises(Conflict, match="trial 1 has ended"):
        search.promote(trial)
    with pytest.raises(Conflict, match="trial 7 is none"):
        search.promote(7)


# The stopping type


def test_the_stopping_type_trains_on_or_prunes() -> None:
    search = searcher(stopping=True)
    trials = create(search, 8)
    assert search.on_report(trials[0], 1, 0.5) == Continue(until=4)  # the first is among the best one
    assert search.on_report(trials[1], 1, 0.6) == Prune()
    assert search.on_report(trials[2], 1, 0.4) == Continue(until=4)
    assert search.on_report(trials[3], 1, NAN) == Prune()
    assert isinstance(search.on_slot(), Create)


def test_the_first_of_a_rung_is_pruned_when_it_diverged() -> None:
    search = searcher(stopping=True)
    assert search.on_report(create(search, 1)[0], 1, NAN) == Prune()


# Whole trainings only


def test_random_search_trains_each_trial_to_its_end() -> None:
    search = searcher(method="random", trials=5)
    decision = search.on_slot()
    assert isinstance(decision, Create)
    assert decision.until == 16
    search.on_report(decision.trial, 16, 0.1)
    assert len(finish(search)) == 4


def test_a_trial_without_a_search_is_a_search_of_one() -> None:
    search = searcher(method="single", trials=1)
    assert search.wants() == 1
    assert finish(search) == [1]


def test_hyperband_begins_in_all_brackets_by_their_shares() -> None:
    search = searcher(method="hyperband", trials=143, units=81, eta=3, first_rung=1)
    untils = [decision.until for decision in (search.on_slot() for _ in range(143)) if isinstance(decision, Create)]
    assert {unit: untils.count(unit) for unit in set(untils)} == {1: 81, 3: 34, 9: 15, 27: 8, 81: 5}


# The ranking


class Reference:
    """Rung implemented directly by its definition, with lists."""

    def __init__(self) -> None:
        self.results: dict[int, float] = {}
        self.left: set[int] = set()

    def promotable(self, eta: int) -> int | None:
        ranked = sorted(self.results, key=lambda trial: (self.results[trial], trial))
        best = [trial for trial in ranked[: len(ranked) // eta] if trial not in self.left]
        finite = [trial for trial in best if self.results[trial] < INF]
        return finite[0] if finite else None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["record", "forget", "leave", "promote"]),
            st.integers(1, 12),
            st.sampled_from([0.1, 0.2, 0.3, INF]),
        )
    ),
    st.integers(2, 4),
)
def test_a_rung_is_what_its_definition_says(acts: list[tuple[str, int, float]], eta: int) -> None:
    rung, reference = Rung(1), Reference()
    for act, trial, value in acts:
        if act == "record":
            rung.record(trial, value)
            reference.results.setdefault(trial, value)
        elif act == "forget":
            # Whoever is taken out has ended: it does not come back.
            rung.leave(trial)
            rung.forget(trial)
            reference.left.add(trial)
            reference.results.pop(trial, None)
        elif act == "leave":
            rung.leave(trial)
            reference.left.add(trial)
        assert rung.promotable(eta) == reference.promotable(eta)
        if act == "promote" and (best := rung.promotable(eta)) is not None:
            rung.leave(best)
            reference.left.add(best)


def test_a_grid_has_no_other_point_for_one_that_makes_no_model() -> None:
    space = Space(parameters=(Parameter(name="kind", domain=Choices(values=("a", "b", "c"))),))
    search = make(settings(method="grid", trials=None), space)
    first, *_ = create(search, 3)
    search.on_exit(first, "invalid")
    assert search.wants() == 0
    assert search.on_slot() is None
