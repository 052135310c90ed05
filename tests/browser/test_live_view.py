"""Test the live view: a cell is run, its experiment is shown live, and the result stays in the notebook."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from jupyter_ext.views import MIME_TYPE
from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, Gate, submitting, write
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


def test_a_reload_before_the_notebook_is_saved_keeps_one_view_which_says_what_a_start_does(
    pages: Callable[[Jupyter], Lab], jupyterlab: Jupyter, gate: Gate
):
    notebook = write(jupyterlab.notebooks / "reloaded.ipynb", LOAD, submitting(gate.slow_start, params=""))
    lab, second = pages(jupyterlab), pages(jupyterlab)
    lab.open(notebook).run(0, 1)
    reading = re.compile("preparing 1 slot: building the model, reading data \\(.* s\\)")
    expect(lab.view().chip).to_have_text(reading, timeout=LATE)
    views = lab.cell(1).locator("article.dl-view")

    lab.reload()
    expect(views).to_have_count(1)
    expect(lab.view().chip).to_have_text(reading)
    lab.shot("view-starting", of=lab.view().root)
    assert not lab.saved(notebook).cells[1].outputs  # nothing was saved that the user has not saved

    lab.restart_kernel()
    lab.reload()
    expect(views).to_have_count(1)
    second.open(notebook)
    expect(second.cell(1).locator("article.dl-view")).to_have_count(1)
    second.page.close()

    lab.save()
    lab.reload()
    expect(views).to_have_count(1)
    gate.open()
    lab.view().until_state("completed")
    expect(views).to_have_count(1)
