"""Test samplers of other libraries: their proposals depend only on seed, number and observations, in every space."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.observations import Observations
from kernel_backend.search.rungs import RankKey
from kernel_backend.search.samplers import optuna
from kernel_backend.search.samplers.base import RandomSampler, Sampler
from kernel_backend.search.samplers.optuna import CmaesSampler, GpSampler, TpeSampler, check_installed, some

PLANE = Space(
    parameters=(
        Parameter(name="lr", domain=Range(low=1e-4, high=1e-1, scale="log")),
        Parameter(name="width", domain=Range(low=1, high=64, whole=True)),
    )
)
LINE = Space(parameters=PLANE.parameters[:1])
CONDITIONAL = Space(
    parameters=(
        Parameter(name="opt", domain=Choices(values=("sgd", "adam", "lion"))),
        Parameter(name="momentum", domain=Range(low=0, high=0.99), when=When(name="opt", values=("sgd",))),
        Parameter(name="nesterov", domain=Choices(values=(True, False)), when=When(name="opt", values=("sgd",))),
    )
)
BLOCKS = Space(
    parameters=(
        Parameter(name="blocks", domain=Range(low=1, high=3, whole=True)),
        Parameter(name="kind", domain=Choices(values=("conv", "res")), each="blocks"),
        Parameter(
            name="width", domain=Range(low=8, high=64, scale="log", whole=True), each="blocks",
            when=When(name="kind", values=("conv",)),
        ),
    )
)  # fmt: skip
ALL = [TpeSampler, GpSampler, CmaesSampler]
FAST = [TpeSampler, CmaesSampler]  # a Gaussian process takes a tenth of a second for an ask


def loss(params: dict[str, Value]) -> float:
    lr, width = params["lr"], params["width"]
    assert isinstance(lr, float)
    assert isinstance(width, int)
    return (math.log10(lr) + 2.2) ** 2 + ((width - 20) / 20) ** 2


def seen_of(space: Space, count: int, value: Any = None) -> Observations:
    """Return the observations of a random search of so many trials; without a function all values are random."""
    seen = Observations(Encoder(space), "min", [1, 4])
    draw, numbers = RandomSampler(5), random.Random(1)
    for trial in range(1, count + 1):
        params = draw.ask(trial, seen)
        seen.begin(trial, params)
        seen.report(trial, 4, value(params) if value else numbers.random())
    return seen


@pytest.mark.parametrize("kind", ALL)
def test_an_ask_follows_from_the_seed_the_number_and_what_was_seen(kind: type[TpeSampler]) -> None:
    seen, again = seen_of(PLANE, 14, loss), seen_of(PLANE, 14, loss)
    asked = kind(3)
    first = asked.ask(15, seen)
    others = [asked.ask(16, seen), kind(4).ask(15, seen), kind(3).ask(15, seen_of(PLANE, 14))]
    assert kind(3).ask(15, again) == asked.ask(15, seen) == first
    assert first not in others


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("space", [CONDITIONAL, BLOCKS], ids=["conditional", "blocks"])
def test_what_is_asked_for_lies_in_the_space(kind: type[TpeSampler], space: Space) -> None:
    seen = seen_of(space, 15)
    for number in (16, 17, 18):
        params = kind(0).ask(number, seen)
        assert seen.encoder.decode([0.5 if math.isnan(at) else at for at in seen.encoder.encode(params)]) == params


@pytest.mark.parametrize("kind", FAST)
def test_it_draws_better_trials_than_chance_does(kind: type[TpeSampler]) -> None:
    seen = seen_of(PLANE, 20, loss)
    sampler: Sampler = kind(1)
    found = []
    for trial in range(21, 81):
        params = sampler.ask(trial, seen)
        seen.begin(trial, params)
        seen.report(trial, 4, loss(params))
        found.append(loss(params))
    chance = [loss(RandomSampler(2).ask(number, seen)) for number in range(200)]
    assert sum(found[30:]) / 30 < 0.5 * sum(chance) / 200


@pytest.mark.parametrize("kind", [TpeSampler, GpSampler])
def test_it_knows_the_trials_that_train_now(kind: type[TpeSampler]) -> None:
    seen = seen_of(PLANE, 14, loss)
    first = kind(3).ask(15, seen)
    seen.begin(15, first)
    seen.train(15)
    assert kind(3).ask(15, seen) != first


@pytest.mark.parametrize("kind", ALL)
def test_it_is_random_until_there_is_enough_to_learn_from(kind: type[TpeSampler]) -> None:
    few = seen_of(PLANE, 9, loss)
    assert kind(3).ask(10, few) == RandomSampler(3).ask(10, few)
    enough = seen_of(PLANE, 11, loss)
    assert kind(3).ask(12, enough) != RandomSampler(3).ask(12, enough)


@pytest.mark.parametrize("kind", ALL)
def test_trials_that_all_diverged_stop_nothing(kind: type[TpeSampler]) -> None:
    seen = seen_of(PLANE, 14, lambda params: math.nan)
    assert set(kind(3).ask(15, seen)) == {"lr", "width"}


def test_one_hyperparameter_is_enough_for_cma_es_and_standing_still_makes_it_begin_again() -> None:
    seen = seen_of(LINE, 12, lambda params: math.log10(params["lr"]) ** 2)
    for trial in range(13, 413):
        seen.begin(trial, {"lr": 1e-3})
        seen.report(trial, 4, 1.0)
    drawn = {CmaesSampler(0).ask(number, seen)["lr"] for number in range(413, 433)}
    rates = [lr for lr in drawn if isinstance(lr, float)]
    assert max(rates) > 2 * min(rates)


@given(st.lists(st.floats(0, 1), max_size=40), st.integers(2, 20))
def test_of_too_many_results_half_are_the_best_and_half_the_newest(values: list[float], most: int) -> None:
    places = sorted(RankKey(value, trial) for trial, value in enumerate(values))
    found = some(places, most)
    assert len(found) == len(set(found)) == min(most, len(places))
    if len(places) > most:
        assert found[: most // 2] == places[: most // 2]
        left = {place.trial for place in places} - {place.trial for place in found}
        assert max(left) < min(place.trial for place in found[most // 2 :])


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("tpe")
    check_installed("kde")
    monkeypatch.setitem(optuna.NEEDED, "gp", ("optuna", "torch_of_nobody"))
    with pytest.raises(InvalidRequest, match=r"gp needs torch_of_nobody .* pip install 'daylight\[search\]'"):
        check_installed("gp")
