"""Test the anywidget view without Daylight's labextension, as in VS Code and Colab."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, Gate, write
from tests.browser.view import LATE
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]


def test_a_widget_lives_with_its_kernel_and_says_how_it_is_brought_back(
    pages: Callable[[Jupyter], Lab], applications: Callable[..., Jupyter], gate: Gate, world: World
):
    plain = applications("plain", ours=False)
    number = gate.submit(world)
    notebook = write(plain.notebooks / "widget.ipynb", LOAD, f"%dl show {number} --view widget")
    lab = pages(plain).open(notebook)
    lab.run(0, 1)
    lab.view().until_it_moves()
    lab.shot("widget-running")
    lab.save()
    lab.reload()
    lab.view().until_it_moves()

    lab.restart_kernel()
    expect(lab.cell(1)).to_contain_text(re.compile(rf"%dl show {number}"), timeout=LATE)
    expect(lab.cell(1).locator(".jp-OutputArea")).to_contain_text(f"%dl show {number}", timeout=LATE)
    lab.shot("widget-kernel-restarted")
    lab.run(0, 1)
    lab.view().until_it_moves()
    gate.open()
    lab.view().until_state("completed")
