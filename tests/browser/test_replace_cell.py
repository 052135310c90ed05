"""Test that a cell that lacks a model and data is replaced by one that names them with one click, and then trains."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, write

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

SETUP = """import torch
model = torch.nn.Linear(4, 1)
train_data = torch.utils.data.TensorDataset(torch.zeros(32, 4), torch.zeros(32, 1))
"""
LOSS = """%%dlsubmit --again --slots 1 --threads 1 --epochs 2 --batch-size 8
def loss(output, target):
    return torch.nn.functional.mse_loss(output, target)
"""


def test_a_cell_without_model_and_data_names_them_by_a_click_and_trains(lab: Lab, jupyterlab: Jupyter):
    notebook = write(jupyterlab.notebooks / "named.ipynb", LOAD, SETUP, LOSS)
    lab.open(notebook).run(0, 1, 2)
    offer = lab.cell(2).get_by_role("region", name="Finished cell")
    expect(offer).to_contain_text("train_data = train_data")
    expect(lab.cell(2)).to_contain_text("this cell has no model and no train_data")
    lab.shot("finished-cell", of=lab.cell(2))
    offer.get_by_role("button", name="Replace cell").click()
    text = lab.cell(2).locator(".cm-content")
    expect(text).to_contain_text("%%dlsubmit --again --slots 1 --threads 1 --epochs 2 --batch-size 8")
    expect(text).to_contain_text("model = model")
    expect(offer).to_contain_text("Replaced: run the cell.")
    lab.run(2)
    lab.view(2).until_state("completed")
