"""Test the note about a value that differs between job and notebook: it names the cell and likely causes."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.snapshot import DEFINITION, Environment, Piece, Snapshot
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.definition.state_check import cells_of, check_state
from kernel_backend.snapshots.state import state_of

SOURCE = """big = list(range(100))
def helper():
    big = 3
    return [big for big in ()]
def model(): ...
def train_data(): ...
def loss(): ...
"""
ENVIRONMENT = Environment(python="", implementation="", platform="", cpu="", cores=1, distributions={})


def snapshot(**values: object) -> Snapshot:
    return Snapshot(
        version="",
        numerics=1,
        pieces=(Piece(cell=4, line=1, count=1, cell_line=1), Piece(cell=9, line=2, count=6, cell_line=1)),
        roles_from=2,
        environment=ENVIRONMENT,
        state={name: state_of(value) for name, value in values.items()},  # type: ignore[misc]
    )


def complaint(tmp_path: Path, was: object, changes: tuple[str, ...] = ()) -> str:
    (tmp_path / DEFINITION).write_text(SOURCE)
    module = types.ModuleType("definition")
    exec(SOURCE, vars(module))
    told = snapshot(big=was)
    (tmp_path / "snapshot.json").write_text(told.model_dump_json())
    loaded = Loaded(module, parse(SOURCE, 2), told)
    with pytest.raises(InvalidDefinition) as raised:
        check_state(loaded, tmp_path, tmp_path, 0, print, lambda: None, lambda: changes)
    return raised.value.message


def test_a_value_is_made_where_its_name_is_bound_at_the_top_level():
    assert cells_of(SOURCE, snapshot()) == {"big": " (cell [4])"}
    assert cells_of("if 1:\n    for a, b in ():\n        with x as c: d = e = 1\n", snapshot()).keys() == set("abcde")


def test_two_that_look_alike_are_told_apart(tmp_path: Path):
    line = complaint(tmp_path, [*range(99), 7]).split("\n")[0]
    assert line.startswith("big differs beyond what is shown: [0, 1, 2")
    assert "job of length 100 " in line
    assert line.endswith("(cell [4])")
    notebook, job = line.partition("notebook ")[2][:8], line.partition("length 100 ")[2][:8]
    assert notebook != job


def test_data_that_has_changed_is_named_beside_the_values(tmp_path: Path):
    lines = complaint(tmp_path, [1], ("data has changed since it was submitted: /data",)).split("\n")
    assert lines[0].startswith("big differs: notebook [1], job [0, 1")
    assert lines[1] == "data has changed since it was submitted: /data"
    assert lines[2].startswith("this value is not what the submitted cells make")
