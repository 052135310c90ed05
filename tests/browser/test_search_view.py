"""Test the live view of a real search: its text, rungs, table, and trials."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import FloatRect, Locator, expect

from kernel_backend.client import Client
from tests.browser.faults import no_service
from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, Gate, write
from tests.browser.view import LATE, View
from tests.support.world import DEFINITION, World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

LINE = """%%dlsubmit --again --search asha --trials 8 --eta 2 --first-rung 1 --sampler random --metric error:min
--slots 1 --epochs 4 --batch-size 16 --threads 1 --name widths lr=1e-3..1e-1:log width=4,8,16""".replace("\n", " ")


def cells(table: Locator, column: int) -> list[str]:
    """Return the cells of a table column, read at one time."""
    texts = "(node, column) => [...node.querySelectorAll('tbody tr')].map(row => row.children[column].innerText)"
    return [str(text) for text in table.evaluate(texts, column)]


def number_of(view: View) -> int:
    """Return the number of the experiment that a view shows."""
    return int(re.findall(r"#(\d+)", view.root.get_attribute("aria-label") or "")[0])


def all_told(lab: Lab, world: World, view: View) -> Locator:
    """Return the table of an ended search once it shows the final status, after which it does not change."""
    number = number_of(view)
    status = Client.connect(start=False, home=world.home).search(number)
    trials = [(f"{number}.{row.trial}", f"{row.unit}/{status.units}") for row in status.trials]
    table = view.root.get_by_role("table", name="Trials")
    lab.until(lambda: list(zip(cells(table, 0), cells(table, 2), strict=True)) == trials, "the last word is shown")
    return table


def at_rest(lab: Lab, figure: Locator, part: Locator) -> FloatRect:
    """Return the box of a part of a figure once its position on the page no longer changes."""
    box: FloatRect | None = None

    def stays() -> bool:
        nonlocal box
        figure.scroll_into_view_if_needed()
        before, box = box, part.bounding_box()
        return box is not None and box == before

    lab.until(stays, "it stays where it is")
    assert box is not None
    return box


@pytest.mark.long
def test_a_search_is_steered_from_its_table_and_kept_in_the_notebook(
    lab: Lab, jupyterlab: Jupyter, gate: Gate, world: World
):
    # So slow that no trial comes to its end before the search is paused.
    line = f"{LINE.replace('--trials 8', '--trials 4').replace('widths', 'steered')} pause=2"
    notebook = write(jupyterlab.notebooks / "steered.ipynb", LOAD, f"{line}\n{gate.definition}")
    lab.open(notebook).run(0, 1)
    view = lab.view()
    search = view.root.get_by_role("region", name="Search")
    table = search.get_by_role("table", name="Trials")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(4, timeout=LATE)
    expect(rows.filter(has_text=re.compile(r"[1-4]/4"))).to_have_count(4, timeout=LATE)  # all have a result
    view.button("Pause").click()
    view.until_state("paused")
    expect(rows.filter(has_text="paused")).to_have_count(4, timeout=LATE)  # between two rungs, too
    expect(table.get_by_role("button", name=re.compile("^promote"))).to_have_count(4)
    lab.shot("search-steering", of=view.root)

    given_up, worst = cells(table, 0)[0], cells(table, 0)[-1]
    before = cells(table, 2)[-1]

    def of(trial: str) -> Locator:
        return rows.filter(has=lab.page.get_by_role("rowheader", name=trial, exact=True))

    prune = table.get_by_role("button", name=f"prune {given_up}", exact=True)
    prune.focus()
    lab.page.keyboard.press("Enter")
    expect(view.question).to_have_attribute("aria-label", f"Prune {given_up} for good?")
    lab.shot("search-prune-question", of=view.root)
    lab.page.keyboard.press("Escape")
    expect(view.question).to_be_hidden()
    expect(prune).to_be_focused()
    lab.page.keyboard.press("Enter")
    view.question.get_by_role("button", name="Prune it").click()
    expect(prune).to_be_hidden()
    expect(of(given_up)).to_contain_text("pruned", timeout=LATE)

    table.get_by_role("button", name=f"promote {worst}", exact=True).press("Enter")
    gate.open()
    view.button("Resume").click()
    view.until_state("completed")
    expect(of(worst)).not_to_contain_text(before, timeout=LATE)  # it went on, whatever its rank
    expect(table.get_by_role("button", name=re.compile("^(promote|prune)"))).to_have_count(0)

    more = search.get_by_role("form", name="More trials")
    expect(more).to_be_visible()
    expect(more.get_by_role("spinbutton")).to_have_value("8")
    lab.shot("search-more", of=view.root)
    more.get_by_role("spinbutton").fill("5")
    more.get_by_role("spinbutton").press("Enter")
    expect(search).to_contain_text("5 of 5 trials", timeout=LATE)
    view.until_state("completed")
    expect(rows).to_have_count(5, timeout=LATE)

    lab.until_kept("completed", trials=5)
    lab.save()
    with no_service(world):  # as whoever the notebook is sent to opens it
        lab.open_without_kernel("steered.ipynb")
        search = lab.view().root.get_by_role("region", name="Search")
        expect(search).to_contain_text("5 of 5 trials")
        expect(search.get_by_role("figure", name="Best so far").locator(".dl-best-line")).to_be_visible()
        expect(search.get_by_role("figure", name="Rungs")).to_contain_text("5 results")
        expect(search.get_by_role("table", name="Trials").locator("tbody tr")).to_have_count(5)
        expect(search.get_by_role("button", name=re.compile("^(promote|prune|Go on)"))).to_have_count(0)
        search.get_by_role("tab", name="Curves").click()
        expect(
            search.get_by_role("figure", name="Learning curves").locator(".dl-curve.dl-chosen").first
        ).to_be_visible()
        lab.shot("search-saved", of=lab.view().root)


@pytest.fixture(scope="module")
def searching(lasting_pages: Callable[[Jupyter], Lab], applications: Callable[..., Jupyter]) -> Lab:
    """Provide a page with a notebook that has submitted a search, for all tests that only look at it."""
    jupyter = applications("lab")
    lab = lasting_pages(jupyter)
    lab.open(write(jupyter.notebooks / "search.ipynb", LOAD, f"{LINE}\n{DEFINITION.strip()}")).run(0, 1)
    return lab


def test_a_search_is_seen_from_its_first_trial_to_its_table(searching: Lab, world: World):
    lab, view = searching, searching.view()
    search = view.root.get_by_role("region", name="Search")
    expect(search).to_contain_text(re.compile(r"\d of 8 trials"), timeout=LATE)
    view.until_state("completed")
    expect(search).to_contain_text(
        re.compile(r"8 of 8 trials: .*error 0?\.\d+ best, trial \d+\.\d+, epoch \d: lr="), timeout=LATE
    )

    rungs = search.get_by_role("figure", name="Rungs")
    expect(rungs.locator("circle").first).to_be_visible(timeout=LATE)
    expect(rungs).to_contain_text("8 results", timeout=LATE)
    expect(search.get_by_role("figure", name="Best so far").locator(".dl-best-line")).to_be_visible()

    table = all_told(lab, world, view)
    assert len(cells(table, 0)) == 8
    values = [float(text) for text in cells(table, 3)]
    assert values == sorted(values)
    lab.shot("search-progress", of=view.root)

    table.get_by_role("button", name="lr", exact=True).click()
    expect(table.get_by_role("columnheader", name="lr")).to_have_attribute("aria-sort", "ascending")
    lab.until(lambda: (rates := [float(text) for text in cells(table, 5)]) == sorted(rates), "sorted by lr")

    chosen = cells(table, 0)[-1]
    table.get_by_role("button", name=chosen, exact=True).click()
    expect(search).to_contain_text(f"trial {chosen}")
    loss = view.root.get_by_role("figure", name="loss")
    loss.scroll_into_view_if_needed()  # what is out of sight is not drawn
    expect(loss.locator("canvas")).to_be_visible(timeout=LATE)
    for tab, figure in (
        ("Curves", "Learning curves"),
        ("Parameters", "Parallel coordinates"),
        ("Pairs", "Best of each field"),
        ("Importance", "What makes the difference"),
    ):
        search.get_by_role("tab", name=tab).click()
        drawn = search.get_by_role("figure", name=figure)
        expect(drawn).to_be_visible()
        if tab != "Importance":  # eight trials are too few for that, which is said
            expect(drawn.locator("[data-trial]").first).to_be_attached(timeout=LATE)
        lab.shot(f"search-{tab.lower()}", of=view.root)
    expect(drawn).to_contain_text("8 trials have a result to compare; 30 are needed", timeout=LATE)


def test_a_brush_chooses_among_the_trials_of_the_table(searching: Lab, world: World):
    lab = searching
    view = lab.tab(number_of(lab.view()))  # one of its own, as it is at first
    view.until_state("completed")
    search = view.root.get_by_role("region", name="Search")
    view.until_connection("ended")
    table = all_told(lab, world, view)
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(8)
    search.get_by_role("tab", name="Parameters").click()
    handle = search.locator(".dl-handle").first
    box = at_rest(lab, search.get_by_role("figure", name="Parallel coordinates"), handle)
    middle = box["x"] + box["width"] / 2
    lab.page.mouse.move(middle, box["y"] + box["height"] - 1)
    lab.page.mouse.down()
    lab.page.mouse.move(middle, box["y"] + box["height"] / 2, steps=5)
    lab.page.mouse.up()
    lab.until(lambda: 0 < rows.count() < 8, "fewer trials")
    rates = [float(text) for text in cells(table, 5)]
    assert max(rates) <= 1e-2 * 1.05, "the lower half of the axis"
    search.get_by_role("button", name="choose all").click()
    expect(rows).to_have_count(8)
    widths = sorted({int(text) for text in cells(table, 6)})
    search.get_by_role("combobox", name="Group by").select_option("width")
    groups = table.locator("tr.dl-row-group")
    expect(groups).to_have_count(len(widths))
    for group, width in zip(groups.all(), widths, strict=True):
        expect(group).to_have_text(re.compile(rf"^width = {width}: \d trials?, best error "))
    expect(rows).to_have_count(8 + len(widths))
