"""Test the side panel: search, filters, tabs and comparisons, also with the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.browser.test_readable_by_all import AXE, RUN
from tests.browser.view import LATE, narrow, overflow
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]
LISTS = "GET .*/daylight/api/experiments(\\?|$)"


@pytest.fixture(scope="module")
def lab(lasting_pages: Callable[[Jupyter], Lab], applications: Callable[..., Jupyter]) -> Lab:
    """One page for all tests of this file, each of which leaves the panel open and nothing searched for."""
    return lasting_pages(applications("lab")).open()


@pytest.fixture(scope="module")
def finished(world: World) -> tuple[int, int]:
    """Provide two ended experiments with different hyperparameters."""
    numbers = [
        world.submit(name=name, slots=1, epochs=3, width=width).experiment.number
        for name, width in (("orchard apple", 16), ("orchard pear", 32))
    ]
    for number in numbers:
        world.ended(number)
    return numbers[0], numbers[1]


def test_experiments_are_listed_searched_filtered_and_opened(
    lab: Lab, finished: tuple[int, int], gate: Gate, world: World
):
    apple, pear = finished
    running = gate.submit(world, name="cherry")
    world.reached(running, 1)
    panel = lab.panel.open()
    expect(panel.item(apple)).to_contain_text("apple")
    expect(panel.entry(running)).to_contain_text("running")
    expect(panel.meter).to_have_attribute("aria-valuenow", "1", timeout=LATE)
    expect(panel.meter).to_have_attribute("aria-valuemax", "2")
    lab.shot("panel-list")

    panel.search.fill("pear")
    expect(panel.items).to_have_count(1)
    expect(panel.item(pear)).to_be_visible()
    panel.search.fill("")
    expect(panel.item(apple)).to_be_visible()
    panel.filter("running").click()
    expect(panel.filter("running")).to_have_attribute("aria-pressed", "true")
    expect(panel.item(running)).to_be_visible()
    expect(panel.item(apple)).to_be_hidden()
    panel.filter("running").click()

    panel.group_by.select_option("param:width")
    panel.search.fill("orchard")  # other tests have experiments of this width, too
    expect(panel.root.get_by_role("list", name="width = 32").get_by_role("listitem")).to_have_count(1)
    expect(panel.root.get_by_role("list", name="no width")).to_have_count(0)
    panel.queue.click()
    expect(panel.root).to_contain_text("nobody waits")
    lab.shot("panel-groups")
    lab.page.route("**/daylight/api/health", lambda route: route.fulfill(json={"pages": "/services/daylight"}))
    lab.reload(kernel=False)
    panel.open()
    expect(panel.search).to_have_value("orchard")
    expect(panel.root.get_by_role("list", name="width = 32").get_by_role("listitem")).to_have_count(1)
    expect(panel.root).to_contain_text("nobody waits")
    panel.queue.click()
    panel.group_by.select_option("")
    panel.search.fill("")

    panel.item(apple).click()
    tab = lab.view_in_tab()
    expect(tab.root).to_have_attribute("aria-label", f"Experiment #{apple} orchard apple")
    panel.item(running).click()
    expect(lab.view_in_tab().root).to_have_attribute("aria-label", f"Experiment #{running} cherry")
    tabs = lab.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="apple")
    panel.item(apple).click()
    expect(lab.view_in_tab().root).to_have_attribute("aria-label", f"Experiment #{apple} orchard apple")
    expect(tabs).to_have_count(1)

    expect(panel.root.get_by_role("link", name="Cluster page")).to_have_attribute("href", "/services/daylight/")
    panel.item(running).click(button="right")
    with lab.page.context.expect_page() as page:
        lab.page.get_by_role("menuitem", name="Open in the Browser").click()
    assert page.value.url.endswith(f"/services/daylight/experiments/{running}")
    page.value.close()
    panel.item(running).click(button="right")
    lab.page.get_by_role("menuitem", name="Copy Link").click()
    copied = "navigator.clipboard.readText()"
    link = f"/services/daylight/experiments/{running}"
    lab.until(lambda: lab.page.evaluate(copied).endswith(link), "the link is in the clipboard")
    lab.page.unroute("**/daylight/api/health")
    panel.item(running).click(button="right")
    lab.shot("panel-menu")
    lab.page.get_by_role("menuitem", name="Stop").click()
    lab.page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    expect(panel.entry(running)).to_contain_text("stopped", timeout=LATE)
    expect(panel.meter).to_have_attribute("aria-valuenow", "0", timeout=LATE)


def test_two_are_compared_by_keyboard_alone(lab: Lab, finished: tuple[int, int]):
    apple, pear = finished
    panel = lab.panel.open()
    panel.tab.click()
    expect(panel.search).to_be_hidden()
    lab.palette("Show Daylight")
    expect(panel.search).to_be_visible()
    panel.search.focus()
    lab.page.keyboard.type("apple")
    expect(panel.items).to_have_count(1)
    lab.tab_to(panel.item(apple))
    lab.page.keyboard.press("Enter")
    expect(lab.view_in_tab().root).to_have_attribute("aria-label", f"Experiment #{apple} orchard apple")

    panel.search.fill("orchard")  # other tests have submitted more, each of which takes several presses of Tab
    expect(panel.items).to_have_count(2)
    panel.search.focus()
    for number in (pear, apple):
        lab.tab_to(panel.chosen(number))
        lab.page.keyboard.press("Space")
        expect(panel.chosen(number)).to_be_checked()
        panel.search.focus()
    expect(panel.button("Compare")).to_be_enabled()  # only then does Tab reach it
    lab.tab_to(panel.button("Compare"))
    lab.page.keyboard.press("Enter")
    compared = lab.page.locator("#jp-main-dock-panel > .lm-Widget:visible .dl-compare")
    expect(compared).to_contain_text(f"#{apple} orchard apple")
    expect(compared).to_contain_text(f"#{pear} orchard pear")
    row = compared.get_by_role("row", name="width")
    expect(row).to_contain_text("16")
    expect(row).to_contain_text("32")
    lab.shot("compare")
    compared.get_by_role("button", name=f"Take out #{pear}").click()
    expect(compared.get_by_role("columnheader")).to_have_count(2)
    expect(row).not_to_contain_text("32")
    compared.get_by_role("button", name=f"Put back #{pear}").click()
    expect(row).to_contain_text("32")
    compared.get_by_role("button", name=f"#{apple} orchard apple", exact=True).click()
    expect(lab.view_in_tab().root).to_have_attribute("aria-label", f"Experiment #{apple} orchard apple")
    panel.search.fill("")


def test_experiments_are_filtered_sorted_tagged_compared_and_deleted_in_a_table(
    lab: Lab, finished: tuple[int, int], gate: Gate, world: World
):
    apple, pear = finished
    page = lab.page
    lab.panel.open().button("Experiments").click()
    root = page.get_by_role("article", name="Experiments")
    table, rows = root.get_by_role("table", name="Experiments"), root.locator("tbody tr")
    field = root.get_by_role("searchbox", name="Filter experiments")
    field.fill("orchard width > 8")
    expect(rows).to_have_count(2)
    head = table.get_by_role("columnheader", name="width")
    for _ in range(2):  # by keyboard alone, and the focus stays
        head.get_by_role("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("orchard pear")
    expect(head.get_by_role("button")).to_be_focused()
    field.fill("orchard widht=16")
    expect(root.get_by_text("No hyperparameter and no metric is called widht")).to_be_visible()
    field.fill("orchard")

    running = gate.submit(world, name="orchard cherry")  # seen without being asked for
    expect(rows).to_have_count(3)
    world.reached(running, 1)
    choose = lambda number: table.get_by_role("checkbox", name=f"Choose #{number}")  # noqa: E731
    choose(pear).focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    expect(choose(apple)).to_be_focused()
    page.keyboard.press("Space")
    expect(root.get_by_text("2 chosen")).to_be_visible()
    page.add_script_tag(path=AXE)
    problems = page.evaluate(RUN, ["article[aria-label=Experiments]"])
    assert not problems, "\n".join(problems)
    lab.shot("experiments-table")
    root.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox").fill("fruit")
    page.get_by_role("dialog").get_by_role("button", name="Tag").click()
    field.fill("tag:fruit")
    expect(rows).to_have_count(2)
    with page.expect_download() as saved:
        root.get_by_role("button", name="CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert [line.split(",")[1] for line in lines] == ["name", "orchard pear", "orchard apple"]
    root.get_by_role("button", name="Compare").click()
    compared = page.locator("#jp-main-dock-panel > .lm-Widget:visible .dl-compare")
    expect(compared).to_contain_text(f"#{pear} orchard pear")

    lab.palette("Experiments")
    field.fill("orchard")
    choose(running).check()
    root.get_by_role("button", name="Delete", exact=True).click()
    question = page.get_by_role("dialog", name="Delete 2 experiments?")
    expect(question).to_contain_text("1 experiment that has not ended will stay")
    question.get_by_role("button", name="Delete", exact=True).click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(3)
    root.get_by_role("button", name=f"#{pear} orchard pear").click()
    expect(lab.view_in_tab().root).to_have_attribute("aria-label", f"Experiment #{pear} orchard pear")


def test_a_hidden_panel_asks_nothing(lab: Lab, gate: Gate, world: World):
    gate.submit(world)  # while something goes on the panel asks every two seconds
    lab.panel.open()
    before = lab.asked(LISTS)
    lab.until(lambda: lab.asked(LISTS) >= before + 2, "the panel asks again")
    lab.panel.tab.click()
    expect(lab.panel.search).to_be_hidden()
    before = lab.asked(LISTS)
    lab.page.wait_for_timeout(6_000)
    assert lab.asked(LISTS) == before
    lab.panel.open()
    lab.until(lambda: lab.asked(LISTS) > before, "it asks again when it is shown")


def test_a_very_narrow_panel_and_view_stay_whole(lab: Lab, finished: tuple[int, int]):
    view = lab.tab(finished[0])
    view.until_state("completed")
    for node, name in ((lab.panel.root, "panel-narrow"), (view.root, "view-narrow")):
        narrow(node, 180)
        lab.until(lambda node=node: overflow(node) <= 0, "nothing is wider than its room")
        lab.shot(name)
