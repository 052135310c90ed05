"""Test grid search: all combinations, each once, and errors for too many of them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search.space import Space
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.grid import count, points, values
from kernel_backend.spec.assignments import parse_line


def grid(line: str) -> list[dict[str, Value]]:
    return points(parse_line(line.split()).space)


def test_what_is_written_last_changes_fastest():
    assert grid("a=1..2 b=x,y") == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_a_grid_of_nothing_is_one_training():
    assert points(Space()) == [{}]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("x=1..4", [1, 2, 3, 4]),
        ("x=0..10:3", [0, 5, 10]),
        ("x=1..3:9", [1, 2, 3]),
        ("x=0..0.5:3", [0.0, 0.25, 0.5]),
        ("x=1e-4..1e-1:log:4", [1e-4, 1e-3, 1e-2, 1e-1]),
        ("x=15..130:log2", [16, 32, 64, 128]),
        ("x=16..256:log2:3", [16, 64, 256]),
        ("x=1..100:log:3", [1, 10, 100]),
        ("x=1..3:log:9", [1, 2, 3]),
        ("x=true,none,0.5", [True, None, 0.5]),
    ],
)
def test_a_range_has_its_values_from_end_to_end(word: str, found: list[Value]):
    (parameter,) = parse_line([word]).space.parameters
    assert list(values(parameter.domain)) == [
        pytest.approx(each) if isinstance(each, float) else each for each in found
    ]


def test_what_does_not_count_makes_no_combinations():
    assert grid("momentum=0.5,0.9@opt=sgd opt=sgd,adam lr=1,2") == [
        {"momentum": 0.5, "opt": "sgd", "lr": 1},
        {"momentum": 0.5, "opt": "sgd", "lr": 2},
        {"momentum": 0.9, "opt": "sgd", "lr": 1},
        {"momentum": 0.9, "opt": "sgd", "lr": 2},
        {"opt": "adam", "lr": 1},
        {"opt": "adam", "lr": 2},
    ]


def test_blocks_are_combined_within_and_with_each_other():
    found = grid("blocks=1..2 block.kind=conv,res@each block.kernel=3,5@each@kind=conv act=relu")
    assert found[:3] == [
        {"blocks": [{"kind": "conv", "kernel": 3}]},
        {"blocks": [{"kind": "conv", "kernel": 5}]},
        {"blocks": [{"kind": "res"}]},
    ]
    assert len(found) == 3 + 3 * 3
    assert grid("blocks=2 block.act=relu@each") == [{"blocks": [{"act": "relu"}, {"act": "relu"}]}]
    assert grid("blocks=0..1 block.n=1..2@each") == [{"blocks": []}, {"blocks": [{"n": 1}]}, {"blocks": [{"n": 2}]}]


@pytest.mark.parametrize(
    "line",
    [
        "a=1..3 b=1..2@a=2 c=x,y@b=1 d=true,false",
        "d=true,false c=x,y@b=1 b=1..2@a=2 a=1..3",
        "rows=0..2 row.n=1..3@each row.m=1,2@each@n=2 stages=1,2 stage.k=x,y@each",
    ],
)
def test_a_grid_is_all_that_a_point_of_the_cube_can_be_and_each_once(line: str):
    space = parse_line(line.split()).space
    found, encoder = points(space), Encoder(space)
    assert all(found.count(each) == 1 for each in found)

    @given(st.lists(st.floats(0, 1), min_size=len(encoder.dimensions), max_size=len(encoder.dimensions)))
    def anywhere(point: list[float]) -> None:
        assert encoder.decode(point) in found

    anywhere()


def test_a_range_of_fractions_without_a_count_is_refused():
    with pytest.raises(InvalidRequest, match=r"'lr=0.0001\.\.0.1:log': a grid needs .* such as lr=0.0001\.\.0.1:log:5"):
        grid("lr=1e-4..1e-1:log width=1..3")


@pytest.mark.parametrize(
    "line",
    [
        "a=1..100001",
        "a=1..2**40",
        "a=1..1000 b=1..101",
        "blocks=1..64 block.kind=a,b,c@each",
    ],
)
def test_a_grid_that_nobody_could_train_is_refused_at_once(line: str):
    with pytest.raises(InvalidRequest, match="more than 100,000 points"):
        grid(line)


@pytest.mark.parametrize("line", ["x=0..0.5:100000 y=0..0.5:400", "x=1..40000000", "z=1..2 x=1..40000000@z=2"])
def test_a_grid_is_counted_before_it_is_made(line: str):
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match="more than 100,000 points"):
        grid(line)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30 * 2**20  # a list of 40,000,000 numbers has 1.5 GB


@given(
    st.integers(1, 3).map(lambda most: f"a=1..{most + 1}"),
    st.sampled_from(["b=x,y", "b=x,y@a=1", "b=x,y@a=2"]),
    st.sampled_from(["c=1..4:3", "c=0..1:5@b=x", "c=1,2@b=x,y", "c=2..64:log2"]),
    st.sampled_from([[], ["rows=0..2", "row.n=1..3@each"], ["rows=1,2", "row.n=1,2@each", "row.m=1..2@each@n=2"]]),
)
def test_as_many_are_counted_as_are_made(a: str, b: str, c: str, rows: list[str]):
    space = parse_line([a, b, c, *rows]).space
    assert count(space) == len(points(space))
