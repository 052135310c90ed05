"""Test which files of the extension JupyterLab loads at once, which on demand, and the behaviour if that fails."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import LABEXTENSION, Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import kept, write
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

FIRST_LOAD = 100_000  # bytes of JavaScript and style that a page loads at once
PANEL_AND_TRAINING = 260_000  # the same once the side panel and a training are shown
OURS = re.compile(r"GET .*/extensions/daylight/static/([^/?]+\.js)")
FILES = re.compile("/extensions/daylight/static/")
STATIC = LABEXTENSION / "static"
FAILED = "This part of Daylight could not be loaded"


@pytest.fixture(scope="module")
def ended(world: World) -> tuple[int, int]:
    """Provide two trainings that have ended."""
    numbers = [world.submit(name="small", slots=1, epochs=1, width=width).experiment.number for width in (16, 32)]
    for number in numbers:
        world.ended(number)
    return numbers[0], numbers[1]


@pytest.fixture(scope="module")
def search(world: World) -> int:
    """Return a search that has ended."""
    number = world.submit(slots=1, epochs=1, space="width=4,8", search={"method": "grid"}).experiment.number
    world.ended(number)
    return number


def loaded(lab: Lab) -> dict[str, int]:
    """Return Daylight's files that the page has requested, with their sizes; the browser marks the lazy ones."""
    return {name: (STATIC / name).stat().st_size for name in lab.requested(OURS)}


def cut(lab: Lab) -> None:
    """Block the page's requests for Daylight's files."""
    lab.page.route(FILES, lambda route: route.abort())


def mend(lab: Lab, place: Locator) -> None:
    """Allow the requests again, and retry where a part is missing."""
    expect(place).to_contain_text(FAILED)
    lab.page.unroute(FILES)
    place.get_by_role("button", name="Try again").click()
    expect(place.get_by_text(FAILED)).to_have_count(0)


def test_parts_are_loaded_when_they_are_needed_and_little_before(lab: Lab, ended: tuple[int, int], search: int):
    lab.open()
    first = loaded(lab)
    assert sum(first.values()) <= FIRST_LOAD, first

    lab.panel.open()
    panel = loaded(lab)
    assert panel.keys() > first.keys()

    lab.tab(ended[0]).until_state("completed")
    expect(lab.view_in_tab().curve.first).to_be_visible()
    training = loaded(lab)
    assert training.keys() > panel.keys()
    assert sum(training.values()) <= PANEL_AND_TRAINING, training

    view = lab.tab(search)
    expect(view.root.get_by_role("table", name="Trials")).to_be_visible()
    with_search = loaded(lab)
    assert with_search.keys() > training.keys()

    lab.command("daylight:open", numbers=list(ended))
    expect(lab.page.locator(".dl-compare")).to_be_visible()
    compared = loaded(lab)
    assert compared.keys() > with_search.keys()

    lab.command("daylight:table")
    expect(lab.page.get_by_role("article", name="Experiments")).to_be_visible()
    assert loaded(lab).keys() > compared.keys()

    lab.command("daylight:models")
    expect(lab.page.get_by_role("article", name="Models")).to_be_visible()

    write(lab.jupyter.notebooks / "parts.ipynb", "pass", output=kept(lab.jupyter.world, ended[0]))
    lab.command("docmanager:open", path="parts.ipynb")
    expect(lab.cell(0).locator("article.dl-view")).to_be_visible()
    # Nothing is left over: each file of the build has been loaded by what needs it.
    assert loaded(lab).keys() == {path.name for path in STATIC.glob("*.js")} - {"style.js"}


def test_an_output_whose_code_does_not_come_shows_its_text_and_can_be_loaded_again(
    lab: Lab, jupyterlab: Jupyter, world: World, ended: tuple[int, int]
):
    output = kept(world, ended[0])
    write(jupyterlab.notebooks / "cut.ipynb", "pass", output=output)
    lab.open()
    cut(lab)
    lab.command("docmanager:open", path="cut.ipynb")
    shown = lab.cell(0).locator(".dl-output")
    expect(shown).to_contain_text(FAILED)
    expect(shown.locator("pre")).to_have_text(output["text/plain"])
    lab.shot("part-failed-output", of=shown)
    mend(lab, shown)
    view = lab.view(0)
    view.until_state("completed")
    view.until_connection("ended")


def test_a_panel_and_a_tab_whose_code_does_not_come_can_be_loaded_again(lab: Lab, search: int):
    lab.open()
    cut(lab)
    lab.panel.tab.click()
    expect(lab.panel.root).to_contain_text(FAILED)
    lab.shot("part-failed-panel")
    mend(lab, lab.panel.root)
    expect(lab.panel.item(search)).to_be_visible()

    cut(lab)
    lab.panel.item(search).click()
    mend(lab, lab.page.locator("#jp-main-dock-panel .dl-tab:visible"))
    expect(lab.view_in_tab().root.get_by_role("table", name="Trials")).to_be_visible()


def test_a_search_whose_code_does_not_come_leaves_the_rest_of_the_view(lab: Lab, ended: tuple[int, int], search: int):
    lab.open()
    lab.tab(ended[0]).until_state("completed")
    cut(lab)
    view = lab.tab(search)
    view.until_state("completed")
    expect(view.root).to_contain_text(FAILED)
    lab.shot("part-failed-search", of=view.root)
    mend(lab, view.root)
    expect(view.root.get_by_role("table", name="Trials")).to_be_visible()
