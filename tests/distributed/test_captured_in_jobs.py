"""Test that gangs train with captured values, which every rank reads with the classes of the definition."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from jupyter_ext.capture import capture_cell

pytestmark = pytest.mark.distributed

CLASS = """
import torch

class Table(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return torch.from_numpy(self.rows[index]), torch.tensor([scale])
"""
CELL = """
def train_data(): return table
def validation_data(): return table
def model(): return torch.nn.Linear(3, 1)
def loss(output, target): return (output - target).square().mean()
def metrics(output, target): return {"scale": target.flatten(), "row": torch.ones(len(target)) * rows[0, 0]}
"""


def test_every_rank_and_its_loader_workers_have_the_notebooks_values(trial, monkeypatch):
    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    exec(CLASS, vars(notebook))
    vars(notebook).update(scale=3.0, rows=np.full((24, 3), 5, "float32"))
    notebook.table = notebook.Table(notebook.rows)
    cells = [CLASS, "scale = 3.0", "rows = download()", "table = Table(rows)"]
    capture = capture_cell(cells, CELL, vars(notebook), captured=["table", "rows"])
    assert not capture.problems
    assert "download" not in capture.source
    attempt = trial(
        source=capture.source,
        options={"loader_workers": 2},
        files=capture.files,
        described={"captured": capture.captured, "roles_from": capture.roles_from},
    ).run()
    assert set(attempt.codes) == {0}, attempt.logs()
    assert {(each["scale"], each["row"]) for each in attempt.reports("validation").values()} == {(3.0, 5.0)}
