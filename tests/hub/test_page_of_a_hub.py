"""Test the cluster page in a real JupyterHub: signing in, the hub's menu, and protection against other sites."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from kernel_backend.api.pages import BUNDLE
from tests.browser import chromium
from tests.browser.cluster_page import ClusterPage
from tests.browser.conftest import cannot
from tests.hub.hub import ADMIN_PASSWORD, PASSWORD, Hub, sign_in

pytestmark = pytest.mark.browser


@pytest.fixture
def tab() -> Iterator[ClusterPage]:
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        if browser is None or not list(BUNDLE.glob("main-*.js")):
            cannot(chromium.MISSING if browser is None else f"{BUNDLE} is not built: run npm run build")
        tab = ClusterPage(browser.new_context(viewport={"width": 1280, "height": 900}))
        yield tab
        browser.close()


def test_an_admin_signs_in_finds_the_page_in_the_menu_and_sets_a_limit(hub: Hub, tab: ClusterPage) -> None:
    page = tab.page
    page.goto(f"{hub.url}/hub/home")
    sign_in(page, "ada", ADMIN_PASSWORD)
    page.get_by_role("button", name=re.compile("Services")).or_(page.get_by_role("link", name="Services")).click()
    page.get_by_role("link", name="daylight").click()
    expect(tab.heading("Your use")).to_be_visible()
    assert page.url == f"{hub.url}/services/daylight/"
    tab.go("Users and groups")
    expect(tab.row("Users and groups", "group of 2")).to_contain_text("of 3 slots")
    tab.type("Limit of group vision", "2")
    expect(tab.said).to_have_text("Limit of group vision: 2, it was 3")
    tab.button("Undo").click()
    expect(tab.said).to_have_text("group vision: as it was")
    assert not tab.errors, tab.errors


def test_what_carries_only_the_cookies_changes_nothing(hub: Hub, tab: ClusterPage) -> None:
    page = tab.page
    page.goto(f"{hub.url}/services/daylight")
    sign_in(page, "ada", ADMIN_PASSWORD)
    expect(tab.heading("Your use")).to_be_visible()
    cookies = {each["name"]: each["value"] for each in page.context.cookies(page.url)}
    answer = httpx.put(
        f"{hub.url}/services/daylight/api/accounts/user/dave/quota",
        json={"limit": 1},
        cookies=cookies,
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code in (401, 403), answer.text


def test_the_address_of_an_experiment_is_reached_by_signing_in_and_leads_to_the_hub(hub: Hub, tab: ClusterPage) -> None:
    address = f"{hub.url}/services/daylight/experiments/999999"
    tab.page.goto(address)
    sign_in(tab.page, "dave", PASSWORD)
    expect(tab.page).to_have_url(address)
    expect(tab.alert).to_contain_text("There is no experiment #999999")
    links = tab.page.get_by_role("navigation", name="Elsewhere")
    expect(links.get_by_role("link", name="My server")).to_have_attribute("href", "/hub/user-redirect/")
    links.get_by_role("link", name="Home").click()
    expect(tab.page).to_have_url(f"{hub.url}/hub/home")
    assert not tab.errors, tab.errors


def test_a_user_sees_no_tables_of_others(hub: Hub, tab: ClusterPage) -> None:
    tab.page.goto(f"{hub.url}/services/daylight/")
    sign_in(tab.page, "dave", PASSWORD)
    expect(tab.page.get_by_role("article", name="Group vision")).to_contain_text("2 guaranteed")
    expect(tab.page.get_by_role("navigation", name="Views")).to_have_text("ClusterModels")
