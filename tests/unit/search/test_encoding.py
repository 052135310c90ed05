"""Test the conversion of hyperparameters to points of the unit cube and back."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Parameter, Space, When
from kernel_backend.search.encoding import Dimension, Encoder


def searched(name: str, domain: Range | Choices, when: When | None = None, each: str | None = None) -> Parameter:
    return Parameter(name=name, domain=domain, when=when, each=each)


def one(**domain: Any) -> Encoder:
    return Encoder(Space(parameters=(searched("x", Range(**domain)),)))


def of(*values: Any) -> Choices:
    return Choices(values=values)


BLOCKS = Space(
    parameters=(
        searched("blocks", Range(low=1, high=3, whole=True)),
        searched("kernel", of(3, 5), When(name="kind", values=("conv",)), each="blocks"),
        searched("kind", of("conv", "res"), each="blocks"),
        searched("act", of("relu"), each="blocks"),
    )
)
NESTED = Space(
    parameters=(
        searched("nesterov", of(True, False), When(name="momentum", values=(1, 2))),
        searched("momentum", Range(low=0, high=3, whole=True), When(name="opt", values=("sgd", "lion"))),
        searched("opt", of("sgd", "adam", "lion")),
        searched("lr", Range(low=1e-4, high=0.1, scale="log"), When(name="opt", values=("adam",))),
    )
)

wholes = st.integers(-(2**40), 2**40)
positive = st.integers(1, 10**12)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    scale = draw(st.sampled_from(["linear", "log", "log2"]))
    whole = draw(st.booleans())
    if scale == "log2":
        low = draw(st.integers(0 if whole else -30, 30))
        return Range(low=2.0**low, high=2.0 ** (low + draw(st.integers(1, 9))), whole=whole, scale="log2")
    if whole:
        numbers = positive if scale == "log" else wholes
    else:
        numbers = st.floats(1e-12, 1e12) if scale == "log" else st.floats(-1e12, 1e12)
    low, high = sorted(draw(st.lists(numbers, min_size=2, max_size=2, unique=True)))
    return Range(low=low, high=high, whole=whole, scale=scale)


domains = ranges() | st.lists(st.text() | st.booleans(), min_size=1, unique=True).map(lambda each: of(*each))


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Draw a space with parameters of which one conditions another, and a list of blocks."""
    first, second, within = draw(domains), draw(domains), draw(domains)
    kinds = of("conv", "res", True, None)
    return Space(
        parameters=(
            searched("a", first, When(name="b", values=draw(st.sampled_from([("res",), ("conv", True)])))),
            searched("b", kinds),
            searched("c", second),
            searched("stages", Range(low=draw(st.integers(0, 2)), high=3, whole=True)),
            searched("d", within, When(name="kind", values=(None, "res")), each="stages"),
            searched("kind", kinds, each="stages"),
        )
    )


def near(one: Any, other: Any) -> bool:
    """Return whether values are equal up to rounding: a coordinate has 53 bits for the whole range."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-3)  # ranges are up to 1e12 wide
    return type(one) is type(other) and one == other


@given(spaces(), st.data())
def test_hyperparameters_come_back_from_their_point(space: Space, data: st.DataObject):
    encoder = Encoder(space)
    size = len(encoder.dimensions)
    params = encoder.decode(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    point = encoder.encode(params)
    assert near(encoder.decode(point), params)
    assert all(0 <= each <= 1 for each in point if each == each)


@given(ranges())
def test_both_ends_of_a_range_are_reached_and_nothing_beyond(domain: Range):
    encoder = Encoder(Space(parameters=(searched("x", domain),)))
    assert encoder.decode([0.0]) == {"x": domain.low}
    assert encoder.decode([1.0]) == {"x": domain.high}


@given(ranges(), st.floats(0, 1), st.floats(0, 1))
def test_values_rise_with_their_coordinate_and_stay_inside(domain: Range, one: float, other: float):
    encoder = Encoder(Space(parameters=(searched("x", domain),)))
    below, above = (encoder.decode([each])["x"] for each in sorted([one, other]))
    assert domain.low <= below <= above <= domain.high
    assert {type(below), type(above)} == {int if domain.whole else float}


def test_whole_numbers_and_choices_have_equal_shares():
    even = [(k + 0.5) / 600 for k in range(600)]
    whole = one(low=1, high=6, whole=True)
    assert set(Counter(whole.decode([each])["x"] for each in even).values()) == {100}
    chosen = Encoder(Space(parameters=(searched("x", of("a", "b", "c")),)))
    assert Counter(chosen.decode([each])["x"] for each in even) == {"a": 200, "b": 200, "c": 200}
    powers = one(low=15, high=300, whole=True, scale="log2")
    assert Counter(powers.decode([each])["x"] for each in even) == dict.fromkeys((16, 32, 64, 128, 256), 120)


def test_a_logarithmic_range_has_its_geometric_mean_in_the_middle():
    assert one(low=1e-4, high=1e-2, scale="log").decode([0.5])["x"] == pytest.approx(1e-3)
    assert one(low=1, high=10**6, whole=True, scale="log").decode([0.5])["x"] == pytest.approx(1000, rel=0.5)


def test_powers_of_two_may_be_fractions():
    found = one(low=0.2, high=5, scale="log2")
    assert [found.decode([each])["x"] for each in (0, 0.3, 0.5, 0.7, 1)] == [0.25, 0.5, 1.0, 2.0, 4.0]


def test_a_choice_is_the_middle_of_its_share():
    encoder = Encoder(Space(parameters=(searched("x", of("a", "b", "c")),)))
    assert encoder.encode({"x": "b"}) == [0.5]
    assert encoder.encode({"x": "c"}) == [2.5 / 3]


def test_what_does_not_count_is_left_out_and_has_no_coordinate():
    encoder = Encoder(NESTED)
    assert encoder.decode([0, 0.3, 0.5, 1]) == {"opt": "adam", "lr": 0.1}
    nesterov, momentum, opt, lr = encoder.encode({"opt": "adam", "lr": 0.1, "momentum": 2, "epochs": 3})
    assert math.isnan(nesterov)
    assert math.isnan(momentum)
    assert (opt, lr) == (0.5, 1.0)
    assert encoder.decode([0, 0.3, 0, 1]) == {"nesterov": True, "momentum": 1, "opt": "sgd"}
    assert encoder.decode([0, 0.9, 0.9, 1]) == {"momentum": 3, "opt": "lion"}  # a condition of a condition


def test_blocks_are_a_list_of_dictionaries_each_with_coordinates_of_its_own():
    encoder = Encoder(BLOCKS)
    assert encoder.dimensions == (
        Dimension("blocks", 0),
        *(
            Dimension(f"blocks[{index}].{name}", 2)  # `act` has one value, and so no coordinate
            for index in range(3)
            for name in ("kernel", "kind")
        ),
    )
    assert encoder.decode([0.5, 0.9, 0.1, 0.9, 0.9, 0, 0]) == {
        "blocks": [{"kind": "conv", "kernel": 5, "act": "relu"}, {"kind": "res", "act": "relu"}]
    }
    point = encoder.encode({"blocks": [{"kind": "res", "act": "relu"}]})
    assert [None if math.isnan(each) else each for each in point] == [1 / 6, None, 0.75, None, None, None, None]


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"opt": "sdg"}, "opt='sdg' lies outside of sgd,adam,lion"),
        ({"opt": "adam", "lr": 0.2}, "lr=0.2 lies outside of 0.0001..0.1:log"),
        ({"opt": "adam", "lr": "0.01"}, "lr='0.01' lies outside"),
        ({"opt": "adam"}, "lr is missing"),
        ({}, "opt is missing"),
        ({"opt": "sgd", "momentum": 1.5}, "momentum=1.5 lies outside"),
    ],
)
def test_what_the_space_does_not_hold_has_no_point(params: dict[str, Any], why: str):
    with pytest.raises(ValueError, match=why):
        Encoder(NESTED).encode(params)


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([{"kind": "res", "act": "relu"}] * 4, "blocks=4 lies outside of 1..3"),
        (2, "blocks=2 is no list"),
        ([{"kind": "conv", "act": "relu", "kernel": 7}], r"blocks\[0\].kernel=7 lies outside of 3,5"),
        ([{"kind": "conv", "act": "relu"}], r"blocks\[0\].kernel is missing"),
        (["conv"], r"blocks=\['conv'\] is no list of dictionaries"),
    ],
)
def test_blocks_that_the_space_does_not_hold_have_no_point(blocks: Any, why: str):
    with pytest.raises(ValueError, match=why):
        Encoder(BLOCKS).encode({"blocks": blocks})
