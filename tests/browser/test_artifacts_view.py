"""Test the artifacts in a training's view: images and tables are displayed, all files can be saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, write
from tests.browser.test_readable_by_all import AXE, RUN
from tests.browser.view import LATE, View
from tests.support.world import DEFINITION, World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]

MODEL, METRICS = "def model(width=16", "def metrics(output"
KEEPING = DEFINITION.replace(MODEL, "def network(width=16").replace(METRICS, "def judged(output")
KEEPING += """
from matplotlib.figure import Figure

def drawn(widths):
    figure = Figure(figsize=(5, 0.5 * len(widths) + 1), layout="tight")
    figure.subplots().barh([f"layer {place + 1}" for place in range(len(widths))], widths)
    return figure

def model(run, network, width=16):
    drawn([8, width, 1]).savefig(run.folder / "net.png")
    run.artifact("architecture", run.folder / "net.png")
    (run.folder / "page.html").write_text("<script>document.title = 'mine'</script>")
    run.artifact("page", run.folder / "page.html")
    return network

def metrics(run, output, target):
    rows = [f"{float(one):.3f},{float(other):.3f}" for one, other in zip(output, target)]
    (run.folder / "table.csv").write_text("predicted,true\\n" + "\\n".join(rows))
    run.artifact("predictions", run.folder / "table.csv")
    run.artifact("all of it", run.folder)
    count = len(list(run.folder.glob("errors *.csv"))) + 1
    (run.folder / f"errors {count}.csv").write_text(f"worst\\n{count}")
    run.artifact(f"errors {count}", run.folder / f"errors {count}.csv")
    return judged(output, target)
"""
LINE = "%%dlsubmit --again --epochs 2 --batch-size 16 --threads 1 --name kept"
SEARCH = "%%dlsubmit --again --search grid --metric error:min --epochs 1 --batch-size 16 --threads 1 width=4,32"


def tiles(view: Locator) -> Locator:
    return view.get_by_role("list", name="Artifacts").get_by_role("listitem")


def seen(view: View) -> Locator:
    """Return the view with its artifacts scrolled into sight: invisible ones are not fetched."""
    view.root.locator(".dl-artifacts").scroll_into_view_if_needed()
    return view.root


def is_drawn(picture: Locator) -> bool:
    return bool(picture.evaluate("image => image.complete && image.naturalWidth > 0"))


def test_pictures_are_shown_and_everything_else_is_saved(lab: Lab, jupyterlab: Jupyter):
    notebook = write(jupyterlab.notebooks / "kept.ipynb", LOAD, f"{LINE}\n{KEEPING.strip()}")
    lab.open(notebook).run(0, 1)
    view = lab.view()
    view.until_state("completed")
    expect(tiles(seen(view))).to_have_count(5, timeout=LATE)
    net = tiles(view.root).filter(has_text="architecture")
    lab.until(lambda: is_drawn(net.locator("img")), "the picture is drawn")
    lab.shot("artifacts", of=view.root)

    net.get_by_role("button").click()
    large = view.root.locator(".dl-large")
    expect(large).to_contain_text("architecture · step 0")
    lab.until(lambda: is_drawn(large.get_by_role("img")), "it is drawn large")
    lab.shot("artifacts-large", of=view.root)
    large.get_by_role("button", name="Close").click()
    expect(large).to_be_hidden()

    tiles(view.root).filter(has_text="predictions").get_by_role("button").click()
    expect(large.get_by_role("columnheader")).to_have_text(["predicted", "true"])
    expect(large.get_by_role("row")).to_have_count(17)
    lab.shot("artifacts-table", of=view.root)
    large.get_by_role("button", name="Close").click()

    errors = tiles(view.root).filter(has_text="errors")
    errors.get_by_role("button").click()
    expect(large.locator("td")).to_have_text("2")
    slider = errors.get_by_role("slider", name="Steps of errors")
    slider.focus()
    lab.page.keyboard.press("ArrowLeft")
    expect(large.locator("td")).to_have_text("1")
    expect(errors).to_contain_text("step 4")
    lab.shot("artifacts-slider", of=view.root)
    large.get_by_role("button", name="Close").click()
    tiles(view.root).filter(has_text="predictions").get_by_role("button").click()
    with lab.page.expect_download() as download:
        large.get_by_role("button", name="Save").click()
    assert Path(download.value.path()).read_bytes().startswith(b"predicted,true\n")

    for name, file, begin in (
        ("page", "page.html", b"<script>"),
        ("all of it", "all of it.zip", b"PK"),
    ):
        with lab.page.expect_download() as download:
            tiles(view.root).filter(has_text=name).get_by_role("button").click()
        assert download.value.suggested_filename == file
        assert Path(download.value.path()).read_bytes().startswith(begin)

    lab.save()
    lab.reload()
    expect(tiles(seen(lab.view()))).to_have_count(5, timeout=LATE)


@pytest.mark.long
def test_of_a_search_those_of_the_trial_that_is_looked_at(lab: Lab, jupyterlab: Jupyter):
    notebook = write(jupyterlab.notebooks / "keptsearch.ipynb", LOAD, f"{SEARCH}\n{KEEPING.strip()}")
    lab.open(notebook).run(0, 1)
    view = lab.view()
    view.until_state("completed")
    artifacts = seen(view).locator(".dl-artifacts")
    expect(artifacts).to_contain_text("of all trials: 10", timeout=LATE)
    expect(tiles(view.root)).to_have_count(5)
    rows = view.root.get_by_role("table", name="Trials").locator("tbody tr")
    expect(rows).to_have_count(2, timeout=LATE)
    other = rows.last.get_by_role("button").inner_text()
    rows.filter(has=lab.page.get_by_role("button", name=other, exact=True)).click()  # wherever it stands by now
    expect(artifacts).to_contain_text(f"of trial {other}: 5", timeout=LATE)
    lab.shot("artifacts-search", of=view.root)


@pytest.mark.long
def test_everybody_can_read_them_in_both_themes(lab: Lab, world: World):
    number = world.submit(KEEPING, slots=1, epochs=1).experiment.number
    world.ended(number)
    lab.open()
    lab.page.add_script_tag(path=AXE)
    for theme in ("Dark", "Light"):
        lab.use_theme(f"JupyterLab {theme}")
        view = lab.tab(number)
        net = tiles(seen(view)).filter(has_text="architecture").get_by_role("button")
        expect(net.locator("img")).to_be_visible(timeout=LATE)
        if net.get_attribute("aria-expanded") == "false":
            net.click()
        expect(view.root.locator(".dl-large")).to_be_visible()
        lab.shot(f"artifacts-{theme.lower()}", of=view.root)
        found = lab.page.evaluate(RUN, [".dl-artifacts"])
        assert not found, "\n".join(found)


@pytest.mark.long
def test_a_widget_shows_them_through_its_kernel(
    pages: Callable[[Jupyter], Lab], applications: Callable[..., Jupyter], world: World
):
    number = world.submit(KEEPING, slots=1, epochs=1, batch_size=16).experiment.number
    world.ended(number)
    plain = applications("plain", ours=False)
    notebook = write(plain.notebooks / "kept.ipynb", LOAD, f"%dl show {number} --view widget")
    lab = pages(plain).open(notebook)
    lab.run(0, 1)
    view = lab.view()
    expect(tiles(seen(view))).to_have_count(5, timeout=LATE)
    lab.until(lambda: is_drawn(tiles(view.root).filter(has_text="architecture").locator("img")), "it is drawn")
    lab.shot("artifacts-widget", of=view.root)
