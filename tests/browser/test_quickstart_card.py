"""Test that the launcher's card opens a copy of the quickstart, each time under an unused name."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import ROOT, Jupyter
from tests.browser.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.notebook]

COMMAND, LABEL = "daylight:quickstart", "Quickstart Notebook"
QUICKSTART = ROOT / "binder" / "quickstart.ipynb"


def test_a_click_opens_a_copy_in_the_folder_that_is_shown(lab: Lab, jupyterlab: Jupyter):
    folder = jupyterlab.notebooks / "first day"
    folder.mkdir()
    lab.open().command("filebrowser:go-to-path", path=folder.name)
    card = lab.page.locator(".jp-Launcher:visible .jp-LauncherCard", has_text=LABEL)
    expect(lab.page.locator(".jp-Launcher:visible .jp-Launcher-cwd")).to_have_text(folder.name)
    card.scroll_into_view_if_needed()
    lab.shot("launcher")
    card.click()
    until_open(lab, "daylight-quickstart.ipynb")
    lab.shot("quickstart")
    lab.command("launcher:create", cwd=folder.name)
    card.click()
    until_open(lab, "daylight-quickstart-1.ipynb")
    lab.palette(LABEL)
    until_open(lab, "daylight-quickstart-2.ipynb")
    assert sorted(each.name for each in folder.iterdir() if each.is_file()) == [
        "daylight-quickstart-1.ipynb",
        "daylight-quickstart-2.ipynb",
        "daylight-quickstart.ipynb",
    ]
    assert lab.saved(f"{folder.name}/daylight-quickstart.ipynb") == nbformat.read(QUICKSTART, as_version=4)


def test_a_folder_that_is_not_there_is_told(lab: Lab):
    lab.open().command(COMMAND, cwd="nowhere")
    expect(lab.page.get_by_role("alert")).to_contain_text("The quickstart could not be copied into nowhere: ")


def until_open(lab: Lab, name: str) -> None:
    """Wait until a notebook of this name is in front, with its first text and a kernel."""
    expect(lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current")).to_have_text(name)
    expect(lab.cell(0)).to_contain_text("A first day with Daylight")
    lab.until_idle()
