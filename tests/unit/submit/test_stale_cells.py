"""Test the warning about cells that were edited after they ran, according to the notebook's file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jupyter_ext.capture import Cell
from jupyter_ext.submit import stale_cells as module
from jupyter_ext.submit.stale_cells import stale_cells

RAN = [Cell("lr = 0.1", number=1), Cell("steps = 3\nx = 1", number=2)]
WARNING = "cell [2] was edited after it ran: what it said when it ran is submitted"


def saved(folder: Path, *cells: tuple[int | None, object]) -> str:
    found = [{"cell_type": "code", "execution_count": number, "source": source} for number, source in cells]
    path = folder / "notebook.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# one"}, *found]}), encoding="utf-8")
    return str(path)


def test_an_edited_cell_is_named_once(tmp_path: Path):
    path = saved(tmp_path, (1, "lr = 0.1"), (2, ["steps = 4\n", "x = 1"]), (None, "new = 1"))
    assert stale_cells(path, RAN, {1, 2}) == [WARNING]


def test_a_cell_that_the_submitted_one_does_not_need_is_not_named(tmp_path: Path):
    assert stale_cells(saved(tmp_path, (2, "steps = 4")), RAN, {1}) == []


def test_space_at_the_ends_of_lines_is_no_edit(tmp_path: Path):
    assert stale_cells(saved(tmp_path, (2, "steps = 3  \r\nx = 1\n\n")), RAN, {2}) == []


def test_a_cell_whose_training_the_job_ran_is_compared_as_it_was_written(tmp_path: Path):
    ran = [Cell("lr = 0.1\n", number=1, written="lr = 0.1\ntrainer.train()")]
    assert stale_cells(saved(tmp_path, (1, "lr = 0.1\ntrainer.train()")), ran, {1}) == []
    assert stale_cells(saved(tmp_path, (1, "lr = 0.2\ntrainer.train()")), ran, {1}) != []


def test_a_file_from_before_the_cell_ran_says_nothing(tmp_path: Path):
    assert stale_cells(saved(tmp_path, (7, "lr = 5"), (None, "steps = 4")), RAN, {1, 2}) == []
    assert stale_cells(saved(tmp_path, (2, "steps = 4")), RAN, {2}, started=time.time() + 60) == []


def test_a_cell_of_another_kernel_with_the_same_number_is_not_taken_for_it(tmp_path: Path):
    path = saved(tmp_path, (2, "steps = 4"), (2, "other = 1"))
    assert stale_cells(path, RAN, {2}) == []


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": [{}]}', "\x00", '{"cells": [3]}'])
def test_a_file_that_is_no_notebook_says_nothing(tmp_path: Path, text: str):
    path = tmp_path / "notebook.ipynb"
    path.write_text(text, encoding="utf-8")
    assert stale_cells(str(path), RAN, {1, 2}) == []


def test_no_file_and_a_huge_one_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert stale_cells(None, RAN, {1, 2}) == []
    assert stale_cells(str(tmp_path / "gone.ipynb"), RAN, {1, 2}) == []
    path = saved(tmp_path, (2, "steps = 4"))
    assert stale_cells(path, RAN, {2}) == [WARNING]
    monkeypatch.setattr(module, "_LARGEST", 10)
    assert stale_cells(path, RAN, {2}) == []
