"""Test the buttons of a view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from kernel_backend.model.cluster.pools import PoolSettings
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


def test_its_code_is_shown_run_again_and_compared(lab: Lab, world: World):
    number = world.submit(slots=1, epochs=1, width=16).experiment.number
    world.ended(number)
    lab.open()
    view = lab.tab(number)
    view.until_state("completed")
    view.button("Source").click()
    expect(view.part("Source")).to_contain_text("def optimizer(params, lr=1e-2)")
    view.button("Source").click()
    expect(view.part("Source")).to_be_hidden()

    view.button("Rerun").click()
    rerun = view.part("Rerun")
    changes = rerun.get_by_role("textbox", name="Changes")
    changes.fill("widht=32")
    changes.press("Enter")
    expect(rerun.get_by_role("alert")).to_contain_text("widht")
    changes.fill("width=32")
    changes.press("Enter")
    expect(rerun).to_contain_text(f"submitted as #{number + 1}")
    assert world.overview(number + 1).experiment.params["width"] == 32

    view.button("Diff").click()
    compared = view.part("Differences")
    compared.get_by_role("spinbutton").fill(str(number + 1))
    compared.get_by_role("button", name="Compare").click()
    expect(compared).to_contain_text("hyperparameters")
    expect(compared).to_contain_text("results")
    lab.shot("view-difference", of=view.root)


def test_it_is_moved_to_another_pool(lab: Lab, gate: Gate, world: World):
    alone = gate.submit(world)
    lab.open()
    view = lab.tab(alone)
    view.until_it_moves()
    expect(view.button("Pause")).to_be_visible()
    expect(view.button("Move")).to_be_hidden()  # the service has one pool
    client = world.serve()
    client.stop(alone)
    client.set_pool("cluster", PoolSettings(engine="slurm", partition="none"))
    try:
        number = gate.submit(world, pool="local,cluster")
        view = lab.tab(number)
        view.until_it_moves()
        view.button("Move").click()
        move = view.part("Move")
        pool = move.get_by_role("combobox", name="Pool")
        expect(pool.get_by_role("option")).to_have_text(
            [re.compile(r"local: \d of \d slots free"), "cluster: cannot be used now"]
        )
        expect(pool.get_by_role("option", name="cluster")).to_be_disabled()
        lab.shot("view-move", of=view.root)
        move.get_by_role("button", name="Move it").click()
        expect(move.get_by_role("status")).to_have_text("moved to local")
        assert client.experiment(number).experiment.config.pools == ("local",)
        expect(move.get_by_role("button", name="Move it")).to_be_disabled()  # the other pool cannot be used
        gate.open()
        view.until_state("completed")
        expect(view.button("Move")).to_be_hidden()
    finally:
        client.remove_pool("cluster")
