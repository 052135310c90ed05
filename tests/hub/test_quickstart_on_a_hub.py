"""Test that a user of a hub can sign in, find the quickstart in JupyterLab's launcher, and open it."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser import chromium
from tests.browser.conftest import cannot
from tests.browser.jupyter import LABEXTENSION, ROOT
from tests.browser.lab import SCREENSHOTS
from tests.browser.view import LATE
from tests.hub.hub import PASSWORD, Hub, sign_in

pytestmark = pytest.mark.browser


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        if browser is None or not (LABEXTENSION / "package.json").exists():
            cannot(chromium.MISSING if browser is None else f"{LABEXTENSION} is not built: run npm run build")
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


def test_a_user_opens_the_quickstart_by_its_card(hub: Hub, page: Page) -> None:
    server = hub.notebook("danielle")
    page.goto(f"{hub.url}/user/danielle/lab")
    sign_in(page, "danielle", PASSWORD)
    card = page.locator(".jp-Launcher:visible .jp-LauncherCard", has_text="Quickstart Notebook")
    expect(card).to_be_visible(timeout=LATE)
    card.scroll_into_view_if_needed()
    page.screenshot(path=SCREENSHOTS / "hub-launcher.png")
    card.click()
    expect(page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current")).to_have_text(
        "daylight-quickstart.ipynb", timeout=LATE
    )
    expect(page.get_by_role("heading", name="A first day with Daylight")).to_be_visible(timeout=LATE)
    expect(page.locator(".jp-Toolbar-kernelName:visible")).to_have_text("Python 3 (ipykernel)", timeout=LATE)
    page.screenshot(path=SCREENSHOTS / "hub-quickstart.png")
    copied = server.get("/api/contents/daylight-quickstart.ipynb").json()["content"]
    there = nbformat.read(ROOT / "binder" / "quickstart.ipynb", as_version=4)
    assert [each["source"] for each in copied["cells"]] == [each.source for each in there.cells]
    server.close()
