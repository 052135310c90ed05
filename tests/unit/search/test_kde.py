"""Test the kernel densities that propose new trials."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.observations import Observations
from kernel_backend.search.samplers.base import RandomSampler
from kernel_backend.search.samplers.kde import KdeSampler, log_density, split

SPACE = Space(
    parameters=(
        Parameter(name="x", domain=Range(low=0, high=1)),
        Parameter(name="kind", domain=Choices(values=("a", "b", "c"))),
        Parameter(name="y", domain=Range(low=0, high=1), when=When(name="kind", values=("b",))),
    )
)


def observed(count: int, seed: int = 0) -> Observations:
    """Return observations of random trials, whose value is low near x = 0.7 with kind b."""
    seen, sampler = Observations(Encoder(SPACE), "min", [1, 4]), RandomSampler(seed)
    for trial in range(1, count + 1):
        params = sampler.ask(trial, seen)
        seen.begin(trial, params)
        x, kind = params["x"], params["kind"]
        assert isinstance(x, float)
        seen.report(trial, 1, abs(x - 0.7) + (kind != "b"))
    return seen


def test_a_density_of_numbers_and_choices_has_mass_one() -> None:
    random = np.random.default_rng(0)
    points = np.column_stack([random.uniform(0.45, 0.55, 40), (random.integers(0, 3, 40) + 0.5) / 3])
    choices = np.array([0, 3])
    grid = np.linspace(-0.5, 1.5, 401)
    at = np.array([(x, (k + 0.5) / 3) for x in grid for k in range(3)])
    # A choice's density is over an interval of a third of the axis.
    mass = np.exp(log_density(at, points, choices)).reshape(-1, 3).sum(axis=1) / 3
    assert np.trapezoid(mass, grid) == pytest.approx(1.0, abs=1e-3)


def test_coordinates_that_do_not_count_weigh_nothing() -> None:
    points = np.array([[0.2, math.nan], [0.4, math.nan], [0.3, math.nan]])
    choices = np.array([0, 0])
    ends = log_density(np.array([[0.3, 0.0], [0.3, 1.0]]), points, choices)
    assert ends[0] == ends[1]
    assert np.isfinite(ends).all()


def test_proposals_gather_where_trials_are_good() -> None:
    seen, sampler = observed(120), KdeSampler(0)
    asked = [sampler.ask(number, seen) for number in range(1000, 1300)]
    anywhere = [RandomSampler(0).ask(number, seen) for number in range(300)]

    def near(proposals: list[dict[str, Value]]) -> int:
        return sum(each["kind"] == "b" and abs(float(str(each["x"])) - 0.7) < 0.15 for each in proposals)

    # A third is drawn anywhere, whatever was seen; the others shall be there four times as often.
    assert near(asked) > 3 * near(anywhere)


def test_the_same_ask_gets_the_same_answer() -> None:
    assert KdeSampler(3).ask(50, observed(60)) == KdeSampler(3).ask(50, observed(60))
    assert KdeSampler(3).ask(50, observed(60)) != KdeSampler(4).ask(50, observed(60))


def test_few_results_are_no_density() -> None:
    assert split(observed(9)) is None
    assert split(observed(10)) is not None


def test_the_highest_rung_with_enough_results_tells() -> None:
    seen = observed(40)
    for trial in range(31, 41):
        seen.report(trial, 4, -float(trial))
    sides = split(seen)
    assert sides is not None
    assert np.array_equal(sides[0], seen.points([40, 39, 38]), equal_nan=True)


@pytest.mark.parametrize("finite", [0, 1, 2, 30])
def test_what_has_diverged_is_good_nowhere(finite: int) -> None:
    seen, sampler = Observations(Encoder(SPACE), "min", [1]), RandomSampler(0)
    for trial in range(1, 31):
        seen.begin(trial, sampler.ask(trial, seen))
        seen.report(trial, 1, float(trial) if trial <= finite else math.nan)
    sides = split(seen)
    assert (sides is None) == (finite == 0)
    if sides is not None:
        assert np.array_equal(sides[0], seen.points([1, 2, 3, 4][:finite]), equal_nan=True)
        assert len(sides[0]) + len(sides[1]) == 30
    assert KdeSampler(0).ask(99, seen)


def test_trials_that_train_count_as_bad() -> None:
    seen = observed(20)
    before = split(seen)
    seen.begin(21, {"x": 0.7, "kind": "a"})
    seen.train(21)
    after = split(seen)
    assert before is not None
    assert after is not None
    assert np.array_equal(after[1], np.vstack([before[1], seen.points([21])]), equal_nan=True)


def test_results_of_another_search_outside_of_the_space_are_not_seen() -> None:
    seen = observed(10)
    seen.begin(0, {"x": 7.0, "kind": "b", "y": 0.5})
    seen.report(0, 4, -1.0)
    assert len(seen.rankings[4]) == 0
    seen.begin(-1, {"x": 0.5, "kind": "a"})
    seen.report(-1, 4, -1.0)
    assert len(seen.rankings[1]) == 11
