"""Test the notification about an ended training: shown once, also if JupyterLab was closed meanwhile."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.browser.view import LATE
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]
LOOKS = "GET .*/daylight/api/experiments/ended"


def notice(lab: Lab, text: str) -> Locator:
    """Return the notification with this text."""
    return lab.page.locator(".Toastify__toast", has_text=re.compile(text))


def test_the_end_of_a_training_is_told_once_to_a_user_who_looks_elsewhere(lab: Lab, gate: Gate, world: World) -> None:
    first, second = (gate.submit(world, name=name) for name in ("quince", "medlar"))
    lab.open()
    lab.panel.open()
    lab.until(lambda: lab.asked(LOOKS) > 0, "the page asks what has ended")
    view = lab.tab(second)
    gate.open()
    view.until_state("completed")
    expect(notice(lab, f"#{first} quince completed")).to_be_visible(timeout=LATE)
    expect(notice(lab, f"#{second} medlar")).to_have_count(0)  # its view is visible
    notice(lab, f"#{first} quince").get_by_role("button", name="Open").click()
    lab.view_in_tab().until_state("completed")

    lab.page.goto("about:blank")
    third = world.submit(name="sorb", slots=1, epochs=1).experiment.number
    world.ended(third)
    lab.open()
    expect(notice(lab, f"#{third} sorb completed")).to_be_visible(timeout=LATE)
    looks = lab.asked(LOOKS)
    lab.reload(kernel=False)
    lab.until(lambda: lab.asked(LOOKS) > looks, "it asks again")
    expect(notice(lab, "completed")).to_have_count(0)
