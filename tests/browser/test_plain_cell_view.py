"""Test the view of a `%%dlrun` cell: it shows log and result, and no parts of a training."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, write
from tests.browser.view import LATE

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

CELL = "%%dlrun --back squares\nsquares = [n * n for n in range(4)]\nprint('hello')\nsum(squares)"


def test_a_plain_cell_shows_its_log_and_result_and_nothing_of_a_training(lab: Lab, jupyterlab: Jupyter):
    notebook = write(jupyterlab.notebooks / "plain.ipynb", LOAD, CELL)
    lab.open(notebook).run(0, 1)
    view = lab.view()
    view.until_state("completed")
    expect(view.root.get_by_role("log")).to_contain_text("result: 14", timeout=LATE)
    expect(view.root).to_contain_text("values.pkl", timeout=LATE)
    lab.shot("view-plain", of=view.root)
    expect(view.root.locator(".dl-progress")).to_be_hidden()
    expect(view.root.locator(".dl-curves")).to_be_hidden()
    expect(view.root).not_to_contain_text("exact")
    expect(view.root).not_to_contain_text("horovod")
    lab.until_kept("completed")
    lab.save()
    (output,) = lab.saved(notebook).cells[1].outputs
    assert "epoch" not in output.data["text/html"]
