"""What a person writes after the options."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.space import parse_assignments


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("lr=1e-2", 0.01),
        ("width=64", 64),
        ("flag=true", True),
        ("flag=False", False),
        ("act=relu", "relu"),
        ("layers=[64,32]", [64, 32]),
        ("betas=(0.9,0.99)", [0.9, 0.99]),
        ("x=none", None),
        ("x=-3", -3),
        ("x=2**10", 1024),
        ("name=a b", "a b"),
        ("name='a b'", "a b"),
        ("name=''", ""),
        ("name='a,b'", "a,b"),
        ("root=../data/set", "../data/set"),
        ("root=/data", "/data"),
        ("x=a=b", "a=b"),
        ("x=3d", "3d"),
        ("x=-inf", -math.inf),
    ],
)
def test_a_value_is_what_it_looks_like(token: str, value: Value):
    (found,) = parse_assignments([token]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("lr=", "has no value"),
        ("=3", "no name"),
        ("lr", "neither an option"),
        ("2lr=3", "no name"),
        ("class=3", "no name"),
        ("a b=3", "no name"),
        ("layers=[64,", "no list"),
        ("lr=1e-4..1e-1", "search"),
        ("lr=1e-4..1e-1:log", "search"),
        ("act=relu,gelu", "search"),
        ("width=32,64", "search"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_token(token: str, why: str):
    with pytest.raises(InvalidRequest, match=why) as error:
        parse_assignments([token])
    assert repr(token) in error.value.message


def test_a_name_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="lr is given twice"):
        parse_assignments(["lr=1", "lr=2"])


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.lists(st.integers())))
def test_what_is_written_is_read_back(value: Value):
    assert parse_assignments([f"x={value!r}"]) == {"x": value}


@given(st.text(min_size=1))
def test_any_text_is_read_or_refused(text: str):
    try:
        parse_assignments([f"x={text}"])
    except InvalidRequest as error:
        assert error.message  # noqa: PT017
