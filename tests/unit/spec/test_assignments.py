"""Test the values, ranges, lists, conditions and blocks that a user writes after the options."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Parameter, When
from kernel_backend.model.values import written
from kernel_backend.spec.assignments import parse_assignments, parse_line


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
        ("x=inf", math.inf),
        ("x=-inf", -math.inf),
        ("x=-Infinity", -math.inf),
        ("x='inf'", "inf"),
        ("x=[1,-inf]", [1, -math.inf]),
        ("x={'a':Inf}", {"a": math.inf}),
        ("x={'a':info}", "{'a':info}"),
        ("blocks=[{'kind':'conv','width':32}]", [{"kind": "conv", "width": 32}]),
        ("x={'a':{'b':(1,2)}}", {"a": {"b": [1, 2]}}),
        ("x={a}", "{a}"),
        ("x='3..5'", "3..5"),
        ("who=me@host", "me@host"),
        ("who='me@a=b'", "me@a=b"),
        ("x=it's, well", "it's, well"),
        (r"x='it\'s, well'", "it's, well"),
        (r"x='C:\\'", "C:\\"),
    ],
)
def test_a_value_is_what_it_looks_like(token: str, value: Value):
    (found,) = parse_assignments([token]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "[nan]", "{'a': nan}"])
def test_nan_is_a_number(text: str):
    (found,) = parse_assignments([f"x={text}"]).values()
    assert repr(found) == text.lower().removeprefix("-")


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, "inf", "Infinity", "-inf", "nan", [1, math.inf], {"a": -math.inf}]
)
def test_what_is_spelled_out_is_read_again(value: Value):
    assert parse_assignments([f"x={written(value)}"]) == {"x": value}


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("lr=1e400", "1e400 is more than a number can be .1.8e308.: write inf if that is meant"),
        ("lr=-1e308*10", "more than a number can be"),
        ("lr=[inf,1e400]", "a number in .* is more than a number can be"),
        ("lr={'a':1e400}", "more than a number can be"),
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
        ("layers=[{1:2}]", "no list"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_token(token: str, why: str):
    with pytest.raises(InvalidRequest, match=why) as error:
        parse_assignments([token])
    assert repr(token) in error.value.message


def test_a_name_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="lr is given twice"):
        parse_assignments(["lr=1", "lr=2"])


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)


@given(st.recursive(plain, lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
@example([{"'\"": 1, ",": 2}, {"\\'\"": 1}])
def test_what_is_written_is_read_back(value: Value):
    assert parse_assignments([f"x={value!r}"]) == {"x": value}


@given(st.text(min_size=1))
def test_any_text_is_read_or_refused(text: str):
    try:
        parse_assignments([f"x={text}"])
    except InvalidRequest as error:
        assert error.message  # noqa: PT017


def searched(line: str) -> list[Parameter]:
    return list(parse_line(line.split()).space.parameters)


def one(domain: Range | Choices) -> list[Parameter]:
    return [Parameter(name="x", domain=domain)]


@pytest.mark.parametrize(
    ("word", "domain"),
    [
        ("x=1e-4..1e-1:log", Range(low=1e-4, high=0.1, scale="log")),
        ("x=0..0.5", Range(low=0, high=0.5)),
        ("x=-1..6", Range(low=-1, high=6, whole=True)),
        ("x=1..100:log", Range(low=1, high=100, whole=True, scale="log")),
        ("x=16..256:log2", Range(low=16, high=256, whole=True, scale="log2")),
        ("x=2**4..2**8:log2", Range(low=16, high=256, whole=True, scale="log2")),
        ("x=0.25..4:log2", Range(low=0.25, high=4, scale="log2")),
        ("x=1e-4..1e-1:log:5", Range(low=1e-4, high=0.1, scale="log", count=5)),
        ("x=0..1.0:3", Range(low=0, high=1, count=3)),
        ("x=32,64,128", Choices(values=(32, 64, 128))),
        ("x=true,false", Choices(values=(True, False))),
        ("x=0.1,inf,-inf", Choices(values=(0.1, math.inf, -math.inf))),
        ("x=relu,'a,b',none,[64,32]", Choices(values=("relu", "a,b", None, [64, 32]))),
        ("x='a','b'", Choices(values=("a", "b"))),
        ("x=../a,../b", Choices(values=("../a", "../b"))),
    ],
)
def test_ranges_and_lists_are_what_is_searched(word: str, domain: Range | Choices):
    assert searched(word) == one(domain)


def test_given_and_searched_ones_mix():
    given, space = parse_line(["lr=0.1", "width=32,64", "act=relu"])
    assert given == {"lr": 0.1, "act": "relu"}
    assert space.names == ("width",)


def test_one_may_count_only_where_another_has_certain_values():
    momentum, opt = searched("momentum=0..0.9@opt=sgd,lion opt=sgd,adam,lion")
    assert momentum.when == When(name="opt", values=("sgd", "lion"))
    assert opt.when is None


def test_blocks_have_hyperparameters_of_their_own():
    line = "blocks=1..6 block.kind=conv,res@each block.width=16..256:log@each block.kernel=3,5@each@kind=conv"
    blocks, kind, width, kernel = searched(line)
    assert blocks.each is None
    assert {kind.each, width.each, kernel.each} == {"blocks"}
    assert (kernel.name, kernel.label, kernel.when) == ("kernel", "block.kernel", When(name="kind", values=("conv",)))
    assert searched(line.replace("@kind", "@block.kind")) == [blocks, kind, width, kernel]


def test_what_others_hang_on_is_in_the_space_though_it_is_given():
    given, space = parse_line(["blocks=3", "block.act=relu@each", "opt=sgd", "momentum=0..0.9@opt=sgd", "lr=0.1"])
    assert given == {"lr": 0.1}
    assert [str(each) for each in space.parameters] == [
        "blocks=3",
        "block.act=relu@each",
        "opt=sgd",
        "momentum=0..0.9@opt=sgd",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x=1..1", "'x=1..1': 1..1 holds one value only: write 1 alone"),
        ("x=3..1", "'x=3..1': 3..1 holds nothing: write 1..3"),
        ("x=0..0.1:log", "'x=0..0.1:log': 0 has no logarithm: begin above zero, such as 1e-06..0.1:log"),
        ("x=-4..64:log2", "-4 has no logarithm: begin above zero, such as 1..64:log2"),
        ("x=17..31:log2", "17..31 needs two powers of two inside"),
        ("x=17..32:log2", "17..32 needs two powers of two inside"),
        ("x=1e400..1e401", "no finite width"),
        ("x=0..2**60", "too far from zero to tell whole numbers apart"),
        ("x=32,", "'x=32,': a list has two values or more"),
        ("x=32,,64", "a list has two values or more"),
        ("x=32,64,32", "'x=32,64,32': 32 is given twice"),
        ("x=1,true", "true is given twice"),
        ("x=nan,1", "nan is no value to choose"),
        ("x=1,1e400", "more than a number can be"),
        ("x=0..inf", "is no range: write two numbers"),
        ("x=-inf..0:log", "is no range: write two numbers"),
        ("x=0..1e400", "has no finite width"),
        ("x=1..3,5", "1..3 is a range within a list"),
        ("x=a..b", "'x=a..b' is no range: write two numbers"),
        ("x=1..2..3", "is no range"),
        ("x=3:log", "'x=3:log' is no range"),
        ("x=1..3:lag", "is no range: .* 1e-4..1e-1:log,"),
        ("x=1..3:log:1", "a grid has two values of a range or more"),
        ("x=1..3 x=3", "'x=3': x is given twice"),
        ("x=1..3@opt=sgd", "'x=1..3@opt=sgd': it hangs on opt, which the line does not have: there are none"),
        ("x=1..3@op=sgd opt=sgd,adam", r"hangs on op, .* \(did you mean opt\?\): there are opt"),
        ("x=1..3@opt=sdg opt=sgd,adam", r"opt is never sdg \(did you mean sgd\?\): it is sgd,adam"),
        ("x=1..3@opt=adam opt=sgd", "opt is never adam: it is sgd"),
        ("x=1..3@n=7 n=1..6", "n is never 7: it is 1..6"),
        ("x=1..3@y=0.5 y=0..1.5", "compares single values, and y=0..1.5 is all fractions"),
        ("x=1..3@a=1@b=2", "has two conditions: write one, .* as @a=1,2"),
        ("x=@a=1", "'x=@a=1' has no value"),
        ("x=1..3@y=1 y=1..3@x=1", "these conditions wait for each other: x -> y -> x"),
        ("block.kind=a,b@each", "'block.kind=a,b@each': nothing says how many .* write blocks=1..6 too"),
        ("block.kind=a,b blocks=1..3", "ends with @each: write block.kind=a,b@each"),
        ("kind=a,b@each blocks=1..3", "@each is for what every block has: write block.kind=... and blocks=1..6"),
        ("block.layer.kind=a,b@each blocks=1..3", "a block has no blocks of its own; write block.kind=...@each"),
        ("block.kind=a,b@each blocks=0.5..3", "blocks=0.5..3 does not say how many blocks there are"),
        ("block.kind=a,b@each blocks=1..65", "a range of them up to 64, such as blocks=1..6"),
        ("block.kind=a,b@each blocks=-1..6", "blocks=-1..6 does not say how many"),
        ("block.kind=a,b@each blocks=[{'kind':'a'}]", "does not say how many"),
        ("block.k=3,5@each@kind=a blocks=1..3 kind=a,b", "hangs on kind of the same block"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_what_to_write_instead(line: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        parse_line(line.split())


@st.composite
def domains(draw: st.DrawFn) -> Range | Choices:
    if draw(st.booleans()):
        values = draw(st.lists(plain | st.text() | st.lists(plain), min_size=2))
        return Choices(values=tuple(each for index, each in enumerate(values) if each not in values[:index]))
    whole = draw(st.booleans())
    numbers = st.integers(1, 2**53) if whole else st.floats(1e-300, 1e300)
    low, high = sorted(draw(st.lists(numbers, min_size=2, max_size=2, unique_by=float)))
    scale = draw(st.sampled_from(["linear", "log", "log2"] if high / low >= 4 else ["linear", "log"]))
    return Range(low=low, high=high, whole=whole, scale=scale, count=draw(st.none() | st.integers(2, 99)))


@given(domains())
def test_a_domain_is_written_as_it_is_read(domain: Range | Choices):
    if isinstance(domain, Range) or len(domain.values) > 1:
        assert parse_line([f"x={domain}"]).space.parameters == (Parameter(name="x", domain=domain),)


@given(st.text(alphabet="xy1.,:@=eachlog'[{ -"))
def test_any_line_is_read_or_refused_with_its_token(text: str):
    try:
        parse_line([f"x={text}", "y=1,2"])
    except InvalidRequest as error:
        assert repr(f"x={text}") in error.message  # noqa: PT017
