"""Test `%%dlrun` cells: their form, the value of the last expression, and rejected options."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.definition.plain import MARK, marked, split
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.artifacts import LAST
from kernel_backend.model.experiment import Config


def ran(source: str, cell: int = 1) -> dict[str, object]:
    scope: dict[str, object] = {"x": 20}
    exec(compile(split(ast.parse(source), cell), "cell", "exec"), scope)
    return scope


def test_a_marked_cell_is_plain_whatever_functions_it_has():
    cell = "def train(run): pass\ndef model(): pass\nmodel()"
    assert parse(cell.rsplit("\n", 1)[0].split("\n")[0]).form == "loop"
    assert parse(marked(cell, [])).form == "plain"


@pytest.mark.parametrize(
    ("cell", "value"),
    [("x + 1", 21), ("(x +\n 2)  # a comment", 22), ("x = 5", None), ("", None), ("if x:\n    x", None)],
)
def test_the_last_expression_is_the_value(cell: str, value: object):
    scope = ran(marked(cell, ["x"]))
    assert scope.get(LAST) == value
    assert scope[MARK] == ["x"]


def test_statements_of_earlier_cells_are_not_run_again():
    assert ran("from __future__ import annotations\nx = 1\n" + marked("x * 2", []), cell=3)[LAST] == 40


@pytest.mark.parametrize("given", [{"slots": 2}, {"patience": 3}, {"steps": 10}])
def test_options_of_a_training_are_refused(given: dict[str, int]):
    definition = parse(marked("1 + 1", []))
    check_options(definition, Config())
    with pytest.raises(InvalidDefinition, match="runs a cell once, in one process"):
        check_options(definition, Config(**given))
