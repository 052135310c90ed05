"""Test that name, tags and note of an experiment can be edited in its tab, below its cell, and in the panel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from kernel_backend.client import Client
from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.browser.view import overflow
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]


def test_labels_are_edited_in_place_and_found(lab: Lab, gate: Gate, world: World):
    number = gate.submit(world, name="plum")
    lab.open()
    panel = lab.panel.open()
    view = lab.tab(number)
    view.choose("Edit")
    form = view.root.get_by_role("form", name="Edit labels")
    expect(form.get_by_label("Name")).to_have_value("plum")
    expect(form.get_by_label("Name")).to_be_focused()
    lab.page.keyboard.press("Escape")
    expect(form).to_be_hidden()
    expect(view.button("More actions")).to_be_focused()

    view.choose("Edit")
    form.get_by_label("Name").fill("Wide plum")
    form.get_by_label("Tags").fill("baseline, no tag!")
    form.get_by_label("Note").fill("diverged after the learning rate was doubled;\nsee #7")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("'tag!' is no tag")
    lab.shot("labels-refused", of=view.root)
    form.get_by_label("Tags").fill("baseline, paper/v2")
    lab.page.keyboard.press("Enter")
    expect(form).to_be_hidden()
    expect(view.root).to_have_attribute("aria-label", f"Experiment #{number} Wide plum")
    expect(view.root.get_by_role("list", name="Tags").get_by_role("listitem")).to_have_text(["baseline", "paper/v2"])
    expect(view.root.get_by_label("Note", exact=True).first).to_contain_text("see #7")
    assert overflow(view.root) == 0
    lab.shot("labels-view", of=view.root)

    panel.search.fill("paper/")
    expect(panel.items).to_have_count(1)
    expect(panel.entry(number)).to_contain_text("baseline")
    panel.search.fill("doubled")
    expect(panel.items).to_have_count(1)
    lab.shot("labels-panel")

    panel.entry(number).click(button="right")
    lab.page.get_by_role("menuitem", name="Edit…").click()
    dialog = lab.page.get_by_role("dialog")
    expect(dialog.get_by_label("Tags")).to_have_value("baseline, paper/v2")
    lab.shot("labels-dialog")
    dialog.get_by_label("Name").fill("narrow plum")
    dialog.get_by_label("Tags").fill("paper/v2")
    dialog.get_by_role("button", name="Save").click()
    expect(panel.item(number)).to_contain_text("narrow plum")
    found = Client.connect(start=False, home=world.home).experiment(number).experiment
    assert (found.name, found.tags) == ("narrow plum", ("paper/v2",))
    assert found.note.endswith("see #7")


def test_below_a_cell_what_is_typed_is_the_forms_and_no_command_of_the_notebook(lab: Lab, notebook: str, gate: Gate):
    lab.open(notebook).run(0, 1)
    view = lab.view()
    view.until_state("running")
    cells = lab.page.locator(".jp-Notebook .jp-Cell").count()
    view.choose("Edit")
    form = view.root.get_by_role("form", name="Edit labels")
    form.get_by_label("Note").click()
    lab.page.keyboard.type("ABLM dd x")  # as commands: cells above and below, line numbers, markdown, cut
    lab.page.keyboard.press("ControlOrMeta+Enter")
    expect(form).to_be_hidden()
    expect(view.root.get_by_label("Note", exact=True).first).to_have_text("ABLM dd x")
    assert lab.page.locator(".jp-Notebook .jp-Cell").count() == cells
    gate.open()
    view.until_state("completed")
