"""Test that a cell with Keras' fit is replaced by functions with one click, and then trains."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, write

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

SETUP = """import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
x, y = np.zeros((32, 4), "float32"), np.zeros((32, 1), "float32")
"""
FIT = """%%dlsubmit --again --slots 1 --threads 1
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse", optimizer="sgd")
model.fit(x, y, epochs=2, batch_size=8)
"""


def test_a_call_of_fit_becomes_functions_by_a_click_and_trains(lab: Lab, jupyterlab: Jupyter):
    notebook = write(jupyterlab.notebooks / "fit.ipynb", LOAD, SETUP, FIT)
    lab.open(notebook).run(0, 1, 2)
    offer = lab.cell(2).get_by_role("region", name="Finished cell")
    expect(offer).to_contain_text("def train_data():")
    expect(lab.cell(2)).to_contain_text("model.fit(...) trains a Keras model (cell [3] line 4)")
    lab.shot("finished-cell", of=lab.cell(2))
    offer.get_by_role("button", name="Replace cell").click()
    text = lab.cell(2).locator(".cm-content")
    expect(text).to_contain_text("%%dlsubmit --again --slots 1 --threads 1 --epochs 2")
    expect(text).to_contain_text(re.compile(r"def train_data\(\):\s*return x, y"))
    expect(offer).to_contain_text("Replaced: run the cell.")
    lab.run(2)
    lab.view(2).until_state("completed")
