"""Test that a failure is shown below the cell that caused it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, submitting, write
from tests.support.world import DEFINITION

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

HELPER = """import torch

def checked(output):
    raise ValueError(f"no such shape: {tuple(output.shape)}")
"""
LOSS = "return nn.functional.mse_loss(output, target)"


def test_a_failing_cell_is_shown_by_cell_and_line_without_our_frames(lab: Lab, jupyterlab: Jupyter):
    failing = DEFINITION.strip().replace(LOSS, "return nn.functional.mse_loss(checked(output), target)")
    assert "checked" in failing
    cell = submitting(failing, "--max-restarts 0", "")
    line = next(n for n, text in enumerate(cell.splitlines(), 1) if "checked(output)" in text)
    notebook = write(jupyterlab.notebooks / "failing.ipynb", LOAD, HELPER, cell)
    lab.open(notebook).run(0, 1, 2)
    view = lab.view(2)
    view.until_state("failed")
    expect(view.chip).to_have_text("failed: ValueError")
    failure = view.root.get_by_role("group", name="Failure")
    expect(failure).to_contain_text("ValueError: no such shape: (8, 1)")
    expect(failure).to_contain_text(re.compile(r"cell \[2\] line 4"))
    expect(failure).to_contain_text('raise ValueError(f"no such shape: {tuple(output.shape)}")')
    expect(failure).to_contain_text(re.compile(rf"cell \[3\] line {line}\b"))
    expect(failure).to_contain_text("mse_loss(checked(output), target)")
    said = failure.inner_text()  # what is seen: the whole traceback is folded away
    assert "kernel_backend" not in said
    assert ".py" not in said
    lab.shot("view-failed", of=view.root)
