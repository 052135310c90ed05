"""Test the times in a training's view: a bar with a text for each part, bars of ranks, and operations.

Below, how its slots are used: the newest values as text, and curves of each rank.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.test_readable_by_all import AXE, RUN
from tests.browser.view import LATE
from tests.support.slow_trainings import SLOW_LOADER
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]


def test_a_bar_shows_where_the_time_of_a_running_training_goes(lab: Lab, world: World) -> None:
    number = world.submit(SLOW_LOADER, name="slow loader", slots=2, epochs=1000, loader_workers=0).experiment.number
    lab.open()
    lab.page.add_script_tag(path=AXE)
    for theme in ("Dark", "Light"):
        lab.use_theme(f"JupyterLab {theme}")
        view = lab.tab(number)
        view.until_state("running")
        times = view.root.get_by_role("region", name="Where time goes")
        expect(times.get_by_role("img", name=re.compile("^last minute: .*waiting for data "))).to_be_visible(
            timeout=LATE
        )
        expect(times.get_by_role("listitem").filter(has_text=re.compile(r"^waiting for data \d+ %$"))).to_be_visible()
        expect(times.locator(".dl-cause")).to_have_text(re.compile("waits for data: --loader-workers"), timeout=LATE)
        fold = times.get_by_text("Whole run and ranks")
        if not times.get_by_role("img", name=re.compile("^rank 1: ")).is_visible():
            fold.click()
        for name in ("whole run", "rank 0", "rank 1"):
            expect(times.get_by_role("img", name=re.compile(f"^{name}: .*waiting for data "))).to_be_visible()
        operations = times.get_by_role("group", name="Operations")
        if not operations.is_visible():
            times.get_by_text("Operations", exact=True).click()
        if theme == "Dark":
            times.get_by_role("button", name="Record 10 steps").click()
        expect(operations.get_by_role("cell", name="aten::addmm", exact=True)).to_be_visible(timeout=LATE)
        expect(times.get_by_role("status")).to_contain_text(re.compile(r"^steps \d+ to \d+ of rank 0;"))
        lab.shot(f"times-{theme.lower()}", of=view.root)
        found = lab.page.evaluate(RUN, [f"article[aria-label^='Experiment #{number} '] .dl-times"])
        assert not found, "\n".join(found)
    use = view.root.get_by_role("region", name="Use of slots")
    fold = use.get_by_text(re.compile(r"^Use of slots, now: .*CPU [\d.]+ cores, memory "))
    expect(fold).to_be_visible(timeout=LATE)
    fold.click()
    for name in ("CPU, cores", "memory, GB"):
        curves = use.get_by_role("figure", name=name, exact=True)
        expect(curves.get_by_role("img", name=re.compile("rank 0: .*rank 1: "))).to_be_visible(timeout=LATE)
    view.button("Stop").click()
    view.question.get_by_role("button", name="Stop it").click()
    view.until_state("stopped")
    expect(times.get_by_role("img", name=re.compile("^whole run: "))).to_be_visible(timeout=LATE)
