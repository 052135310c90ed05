"""Test the view of an unchanged training loop: its curves, and its guarantee after the rehearsal."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, Gate, write
from tests.browser.view import LATE

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

LOOP = """%%dlsubmit --again --slots 1 --threads 1 --checkpoint-every 1steps
import os, time
import numpy as np
import torch
from torch import nn
torch.manual_seed(0)
x = torch.tensor(np.random.default_rng(SEED).normal(size=(512, 4)), dtype=torch.float32)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(10_000):
    if os.path.exists(GATE):
        break
    for rows in torch.randperm(16).split(8):
        time.sleep(0.05)
        optimizer.zero_grad()
        loss = (model(x[rows]) - x[rows].sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
"""


@pytest.mark.parametrize(
    ("seed", "guarantee"),
    [
        ("0", r"exact to the step.*rehearsed at steps \d+ to \d+"),
        ("", r"from the start, with other bits: .*default_rng\(\) has no seed, line 7; x was made with other contents"),
    ],
    ids=["seeded", "unseeded"],
)
@pytest.mark.long
def test_the_guarantee_of_a_rehearsed_loop_is_shown_while_it_trains(
    lab: Lab, jupyterlab: Jupyter, gate: Gate, seed: str, guarantee: str
):
    shown = re.compile(guarantee)
    cell = LOOP.replace("SEED", seed).replace("GATE", repr(str(gate.path)))
    lab.open(write(jupyterlab.notebooks / f"raw{seed}.ipynb", LOAD, cell)).run(0, 1)
    view = lab.view()
    view.until_state("running")
    view.root.locator("summary", has_text="Details").click()
    facts = view.root.get_by_role("list", name="Attempts")
    expect(facts).to_have_text(shown, timeout=LATE)
    lab.shot(f"view-raw-loop-{seed or 'unseeded'}", of=view.root)
    gate.open()
    view.until_state("completed")
    expect(facts).to_have_text(shown)
    expect(view.curve.first).to_contain_text("loss")
