"""A loop that was submitted as it is can be put in place as functions, by one click, and trains then."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, write

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

SETUP = """import torch
from torch import nn
data = torch.utils.data.TensorDataset(torch.zeros(32, 4), torch.zeros(32, 1))
train_loader = torch.utils.data.DataLoader(data, batch_size=8)
model = nn.Linear(4, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """%%dlsubmit --again --slots 1 --threads 1
for epoch in range(2):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""


def test_a_loop_becomes_functions_by_a_click_and_trains(lab: Lab, jupyterlab: Jupyter):
    notebook = write(jupyterlab.notebooks / "loop.ipynb", LOAD, SETUP, LOOP)
    lab.open(notebook).run(0, 1, 2)
    offer = lab.cell(2).get_by_role("region", name="Finished cell")
    expect(offer).to_contain_text("def loss(output, target):")
    expect(lab.cell(2)).to_contain_text("this cell is a training loop (cell [3] line 2: for epoch in range(2)")
    lab.shot("finished-cell", of=lab.cell(2))
    offer.get_by_role("button", name="Replace cell").click()
    text = lab.cell(2).locator(".cm-content")
    expect(text).to_contain_text("%%dlsubmit --again --slots 1 --threads 1 --epochs 2")
    expect(text).to_contain_text(re.compile(r"def train_data\(\):\s*return train_loader"))
    expect(offer).to_contain_text("Replaced: run the cell.")
    lab.run(2)
    lab.view(2).until_state("completed")
