"""Test the live view: a cell is run, its experiment is shown live, and the result stays in the notebook."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from jupyter_ext.views import MIME_TYPE
from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.browser.view import LATE

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]


def test_a_cell_is_seen_live_while_its_kernel_sleeps_and_its_result_is_saved(lab: Lab, notebook: str, gate: Gate):
    lab.open(notebook).run(0, 1)
    view = lab.view()
    view.until_state("running")
    kernel = lab.kernel()
    kernel.suspend()
    try:
        view.until_it_moves(by=3)
        expect(view.chip).to_have_text("running")
        expect(view.curve.first).to_be_visible()
        lab.shot("view-running", of=view.root)
        gate.open()
        view.until_state("completed")
    finally:
        kernel.resume()
    expect(view.chip).to_have_text("completed")
    expect(view.progress).to_have_attribute("aria-valuenow", "100", timeout=LATE)
    lab.shot("view-completed", of=view.root)

    lab.until_kept("completed")
    lab.save()
    (output,) = lab.saved(notebook).cells[1].outputs
    saved = output.data[MIME_TYPE]
    assert saved["overview"]["experiment"]["state"] == "completed"
    assert saved["curves"]["curves"]
    assert "completed" in output.data["text/html"]
    assert "queued" not in output.data["text/html"]
    assert "completed" in output.data["text/plain"]
    assert output.data["image/png"]
