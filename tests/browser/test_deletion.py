"""Test that an ended experiment can be deleted and restored in its view and in the panel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]


def test_it_is_deleted_after_a_question_and_brought_back(lab: Lab, world: World):
    number = world.submit(name="fig", slots=1, epochs=1).experiment.number
    world.ended(number)
    lab.open()
    panel = lab.panel.open()
    view = lab.tab(number)
    view.until_state("completed")
    view.choose("Delete")
    question = view.root.get_by_role("alertdialog", name=f"Delete #{number}?")
    expect(question).to_contain_text("For a day this can be undone")
    lab.shot("delete-question", of=view.root)
    question.get_by_role("button", name="Keep it").click()
    view.choose("Delete")
    question.get_by_role("button", name="Delete it").click()
    view.until_state("deleted")
    expect(view.chip).to_have_text("deleted")
    expect(view.root).to_contain_text("Undelete brings it back until ")
    expect(panel.item(number)).to_be_hidden()
    lab.shot("delete-deleted")
    view.button("Undelete").click()
    view.until_state("completed")
    expect(panel.item(number)).to_be_visible()

    panel.entry(number).click(button="right")
    lab.page.get_by_role("menuitem", name="Delete…").click()
    lab.page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    expect(panel.item(number)).to_be_hidden()
    view.until_state("deleted")
    panel.filter("deleted").click()
    expect(panel.entry(number)).to_contain_text("deleted")
    lab.shot("delete-panel")
    panel.entry(number).click(button="right")
    lab.page.get_by_role("menuitem", name="Undelete").click()
    expect(panel.item(number)).to_be_hidden()
    view.until_state("completed")
    panel.filter("deleted").click()
    expect(panel.entry(number)).to_contain_text("completed")
    assert world.overview(number).state == "completed"
