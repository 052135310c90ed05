"""Test search spaces: the rest after some values are given, and invalid spaces."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from kernel_backend.model.record import Value
from kernel_backend.model.search.space import Space
from kernel_backend.spec.assignments import parse_line

OPTIMIZERS = "opt=sgd,adam beta=0..0.9@opt=adam lr=0.1,0.2"
CHAIN = "a=1,2 b=1,2@a=1 c=1,2@b=1 d=1,2"
BLOCKS = "blocks=1..3 block.kind=conv,res@each block.kernel=3,5@each@kind=conv width=8,16"


def space(line: str) -> Space:
    return parse_line(line.split()).space


@pytest.mark.parametrize(
    ("line", "given", "left"),
    [
        (BLOCKS, {"width": 8}, BLOCKS.removesuffix(" width=8,16")),
        (BLOCKS, {"blocks": 2}, BLOCKS.replace("1..3", "2")),
        (BLOCKS, {"blocks": [{"kind": "res"}]}, "width=8,16"),
        (OPTIMIZERS, {"opt": "sgd"}, "lr=0.1,0.2"),
        (OPTIMIZERS, {"opt": "adam"}, "opt=adam beta=0..0.9@opt=adam lr=0.1,0.2"),
        (CHAIN, {"a": 2}, "d=1,2"),
        (CHAIN, {"b": 2}, "a=1,2 d=1,2"),
        (CHAIN, {"b": 1}, "a=1,2 b=1 c=1,2@b=1 d=1,2"),
        ("a=1,2,3 b=1,2@a=1,3", {"a": 3}, "a=3 b=1,2@a=3"),
        ("a=1,2 b=0..0.5", {"b": math.nan}, "a=1,2"),
        ("a=1..3 rows=1..2@a=2 row.n=1,2@each", {"a": 1}, ""),
        ("a=1..3 rows=1..2@a=2 row.n=1,2@each", {"a": 2}, "a=2 rows=1..2@a=2 row.n=1,2@each"),
        ("a=1..3 rows=1..2@a=2 row.n=1,2@each", {"rows": 1}, "a=1..3 rows=1 row.n=1,2@each"),
        (BLOCKS, {"epochs": 3}, BLOCKS),
        ("a=1,2", {"a": 2}, ""),
    ],
)
def test_what_is_given_is_searched_no_more_and_neither_is_what_then_never_counts(
    line: str, given: dict[str, Value], left: str
):
    assert " ".join(map(str, space(line).given(given).parameters)) == left


def test_a_space_travels_as_json():
    found = space(BLOCKS)
    assert Space.model_validate(found.to_json()) == found
    assert Space.model_validate_json(found.model_dump_json()) == found


def test_a_space_that_cannot_be_is_refused_wherever_it_comes_from():
    wire = space("a=1,2 b=1..3@a=1").to_json()
    wire["parameters"][1]["when"]["values"] = [3]
    with pytest.raises(ValidationError, match=r"b=1\.\.3@a=3: a is never 3: it is 1,2"):
        Space.model_validate(wire)
    wire["parameters"].append(wire["parameters"][0])
    with pytest.raises(ValidationError, match="a is given twice"):
        Space.model_validate(wire)
