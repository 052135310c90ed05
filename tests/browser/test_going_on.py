"""Test that a view recovers after its page, kernel, server or service has gone away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.faults import no_service
from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]


def test_it_goes_on_after_a_reload_with_a_fresh_kernel_and_with_none(lab: Lab, notebook: str, gate: Gate):
    lab.open(notebook).run(0, 1)
    lab.view().until_it_moves()
    lab.save()
    lab.reload()
    lab.view().until_it_moves()
    lab.restart_kernel()
    lab.view().until_it_moves()
    lab.shut_kernel_down()
    lab.view().until_it_moves()
    lab.view().until_connection("live")
    gate.open()
    lab.view().until_state("completed")


@pytest.mark.long
def test_a_notebook_of_last_week_goes_on_without_a_kernel_and_is_read_where_daylight_is_not(
    pages: Callable[[Jupyter], Lab], jupyterlab: Jupyter, notebook: str, gate: Gate, tmp_path: Path
):
    first = pages(jupyterlab).open(notebook)
    first.run(0, 1)
    first.view().until_it_moves()
    first.save()
    first.page.close()
    jupyterlab.kill()
    jupyterlab.start()

    again = pages(jupyterlab).open_without_kernel(notebook)
    again.view().until_it_moves()
    assert jupyterlab.request("GET", "api/kernels") == []
    gate.open()
    again.view().until_state("completed")
    again.until_kept("completed")
    again.save()

    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path)]
    subprocess.run([*command, str(jupyterlab.notebooks / notebook)], check=True, capture_output=True)
    page = again.page.context.new_page()
    page.goto((tmp_path / notebook).with_suffix(".html").as_uri())
    output = page.locator(".jp-OutputArea-output")
    expect(output).to_contain_text("completed")
    expect(output.get_by_role("row", name="error")).to_be_visible()
    picture = output.locator("img")
    assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
    page.screenshot(path=again.shot("nbconvert"), full_page=True)


def test_where_the_service_dies_the_last_state_is_greyed_until_it_is_back(
    lab: Lab, notebook: str, gate: Gate, world: World
):
    lab.open(notebook).run(0, 1)
    view = lab.view()
    seen = view.until_it_moves()
    with no_service(world):
        view.until_connection("lost")
        expect(view.note).to_contain_text("trying again")
        expect(view.button("Try now")).to_be_visible()
        assert view.step >= seen
        greyed = "node => getComputedStyle(node.closest('.dl-canvas')).filter"
        assert "saturate" in view.root.locator("canvas").first.evaluate(greyed)
        lab.shot("view-service-down", of=view.root)
        view.button("Try now").click()
        view.until_connection("lost")
    gate.open()
    view.until_state("completed")
    expect(view.note).to_be_hidden()
