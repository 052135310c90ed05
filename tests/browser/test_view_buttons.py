"""Test the buttons of a view."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]


def test_it_is_paused_resumed_and_after_a_question_stopped(lab: Lab, gate: Gate, world: World):
    number = gate.submit(world)
    lab.open()
    view = lab.tab(number)
    view.until_it_moves()
    expect(view.button("Resume")).to_be_hidden()
    view.button("Copy command").click()
    copied = "navigator.clipboard.readText()"
    lab.until(lambda: lab.page.evaluate(copied) == f"%dl show {number}", "the command is in the clipboard")

    view.button("Pause").click()
    view.until_state("paused")
    expect(view.button("Pause")).to_be_hidden()
    lab.shot("view-paused")
    view.button("Resume").click()
    view.until_state("running")

    view.button("Stop").click()
    expect(view.question).to_be_visible()
    assert view.question.get_attribute("aria-label") == f"Stop #{number} for good?"
    lab.shot("view-stop-question")
    lab.page.keyboard.press("Escape")
    expect(view.question).to_be_hidden()
    view.button("Stop").click()
    view.question.get_by_role("button", name="Keep it running").click()
    expect(view.question).to_be_hidden()
    view.until_it_moves()
    view.button("Stop").click()
    view.question.get_by_role("button", name="Stop it").click()
    view.until_state("stopped")
    expect(view.chip).to_have_text("stopped")
    for name in ("Stop", "Pause", "Resume"):
        expect(view.button(name)).to_be_hidden()
