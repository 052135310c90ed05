"""Test simulated searches: one that can be computed by hand, and one with a thousand gangs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.search import TableProblem, make, simulate
from kernel_backend.search.simulation.problems import Trained
from tests.support.search_builders import settings

LINE = Space(parameters=(Parameter(name="x", domain=Range(low=0, high=1)),))


def table(values: list[list[float]]) -> TableProblem:
    """Return a problem with rows at x = 0, 1/n, 2/n ... and these curves."""
    count = len(values)
    return TableProblem(["x"], np.arange(count)[:, None] / count, np.array(values), LINE)


def test_four_trials_on_one_gang_counted_by_hand() -> None:
    problem = table([[0.9, 0.8], [0.5, 0.1], [0.7, 0.6], [0.8, 0.7]])
    trace = simulate(make(settings(units=2, trials=4), LINE), problem, 1)
    # Four times one unit, then the best of them one more.
    assert trace.ended == 5.0
    assert trace.utilisation == 1.0
    assert sorted(trial.trained for trial in trace.trials.values()) == [1.0, 1.0, 1.0, 2.0]
    assert trace.time_to(0.1) == 5.0
    assert trace.time_to(0.05) == math.inf
    assert math.isnan(trace.best_at(0.5))
    assert trace.best_at(4.0) == 0.5
    assert trace.best_at(99.0) == 0.1
    assert sorted(trial.state for trial in trace.trials.values()) == ["completed", "paused", "paused", "paused"]


def test_two_gangs_wait_for_nobody() -> None:
    problem = table([[0.9, 0.8]] * 4)
    trace = simulate(make(settings(units=2, trials=4), LINE), problem, 2)
    # 4 units side by side, then one promotion; the other gang trains the best that was passed over.
    assert trace.ended == 3.0
    assert trace.utilisation == 1.0


def test_loading_costs_what_it_is_said_to() -> None:
    problem = table([[0.9, 0.8]] * 4)
    trace = simulate(make(settings(units=2, trials=4), LINE), problem, 1, resume_cost=0.5)
    # Four loads, four units; the fifth unit is another trial's, which loads again.
    assert trace.ended == 4 * 1.5 + 1.5


def test_a_trial_that_keeps_its_slots_does_not_load() -> None:
    problem = table([[0.9, 0.8], [0.9, 0.8], [0.9, 0.8], [0.1, 0.05]])
    order = make(settings(units=2, trials=4, method="random"), LINE)
    assert simulate(order, problem, 1, resume_cost=0.5).ended == 4 * 2.5


def test_a_proposal_takes_the_nearest_row_that_is_free() -> None:
    problem = table([[0.1], [0.2], [0.3], [0.4]])
    assert problem.begin(1, {"x": 0.3}, None) == {"x": 0.25}
    assert problem.begin(2, {"x": 0.3}, None) == {"x": 0.5}
    assert problem.begin(3, {"x": 0.3}, None) == {"x": 0.0}
    assert problem.value(2, 1) == 0.3
    problem.begin(4, {"x": 0.3}, None)
    with pytest.raises(IndexError, match="all 4 rows are taken"):
        problem.begin(5, {"x": 0.3}, None)


def test_a_table_must_be_one() -> None:
    with pytest.raises(ValueError, match=r"2 names and 3 curves, but configs of shape \(3, 1\)"):
        TableProblem(["x", "y"], np.zeros((3, 1)), np.zeros((3, 2)))


def test_a_table_without_a_space_makes_one_of_its_columns() -> None:
    problem = TableProblem(["lr", "depth"], np.array([[1e-4, 1.0], [1e-1, 6.0]]), np.zeros((2, 3)))
    assert [str(each) for each in problem.space.parameters] == ["lr=0.0001..0.1:log", "depth=1.0..6.0"]


def test_the_same_arguments_give_the_same_trace() -> None:
    def once(seed: int) -> list[tuple[float, float]]:
        search = make(settings(sampler="kde", trials=100), LINE)
        trace = simulate(search, Trained(16), 8, seed, jitter=0.3, failures=0.1, resume_cost=0.2)
        return list(zip(trace.times.tolist(), trace.values.tolist(), strict=True))

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_a_goal_and_a_limit_end_it() -> None:
    search = make(settings(trials=100), LINE)
    trace = simulate(search, Trained(16), 4, goal=0.8)
    assert trace.values[-1] <= 0.8
    assert (trace.values[:-1] > 0.8).all()
    limited = simulate(make(settings(trials=100), LINE), Trained(16), 4, max_time=7.5)
    assert limited.ended == 7.5
    assert limited.utilisation == 1.0


def test_a_thousand_gangs_of_which_thirty_in_a_hundred_fail_are_kept_busy() -> None:
    search = make(settings(trials=None, max_time=20.0, units=16), LINE)
    trace = simulate(search, Trained(16), 1000, 0, jitter=0.3, failures=0.3, max_time=20.0)
    states = [trial.state for trial in trace.trials.values()]
    assert states.count("failed") > 0.2 * len(states)
    assert trace.utilisation >= 0.99


def test_a_maximum_is_looked_for_upwards() -> None:
    problem = table([[0.1, 0.2], [0.5, 0.6], [0.3, 0.4], [0.2, 0.9]])
    trace = simulate(make(settings(units=2, trials=4, mode="max"), LINE), problem, 1, mode="max")
    assert trace.best_at(99.0) == 0.6
    assert trace.time_to(0.55) == 5.0
