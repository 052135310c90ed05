"""Test the buttons of a view."""

from __future__ import annotations

import re
import tarfile

import pytest
from playwright.sync_api import expect

from kernel_backend.client import Client
from kernel_backend.model.cluster.pools import PoolSettings
from tests.browser.lab import Lab
from tests.browser.notebooks import Gate
from tests.support.submitted import daylight
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]


def test_it_is_paused_resumed_and_after_a_question_stopped(lab: Lab, gate: Gate, world: World):
    number = gate.submit(world)
    lab.open()
    view = lab.tab(number)
    view.until_it_moves()
    expect(view.button("Resume")).to_be_hidden()
    view.choose("Copy command")
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
    # By keyboard: what cannot be undone is last.
    view.button("More actions").press("Enter")
    expect(view.item("Rerun")).to_be_focused()
    lab.page.keyboard.press("ArrowUp")
    expect(view.item("Delete")).to_be_focused()
    lab.shot("view-menu")
    lab.page.keyboard.press("Escape")
    expect(view.item("Delete")).to_be_hidden()
    expect(view.button("More actions")).to_be_focused()


def test_its_code_is_shown_run_again_and_compared(lab: Lab, world: World):
    number = world.submit(slots=1, epochs=1, width=16).experiment.number
    world.ended(number)
    lab.open()
    view = lab.tab(number)
    view.until_state("completed")
    view.choose("Source")
    expect(view.part("Source")).to_contain_text("def optimizer(params, lr=1e-2)")
    view.part("Source").get_by_role("button", name="Close Source").click()
    expect(view.part("Source")).to_be_hidden()
    view.choose("Source")

    view.choose("Rerun")
    expect(view.part("Source")).to_be_hidden()  # one at a time
    rerun = view.part("Rerun")
    changes = rerun.get_by_role("textbox", name="Hyperparameters")
    expect(changes).to_have_value(re.compile("width=16"))
    changes.fill("widht=32")
    changes.press("Enter")
    expect(rerun.get_by_role("alert")).to_contain_text("widht")
    changes.fill("width=32")
    changes.press("Enter")
    expect(rerun).to_contain_text(f"submitted as #{number + 1}")
    expect(rerun.get_by_role("button", name=f"#{number + 1}")).to_be_visible()
    assert world.overview(number + 1).experiment.params["width"] == 32

    view.choose("Diff")
    compared = view.part("Differences")
    compared.get_by_role("spinbutton").fill(str(number + 1))
    compared.get_by_role("button", name="Compare").click()
    expect(compared).to_contain_text("width 32 -> 16")  # from the other to this one
    expect(compared).to_contain_text("results")
    lab.shot("view-difference", of=view.root)


def test_an_end_offers_the_model_a_longer_training_and_the_checkpoints(lab: Lab, world: World):
    number = world.submit(slots=1, epochs=1, width=24).experiment.number
    world.ended(number)
    lab.open()
    view = lab.tab(number)
    view.until_state("completed")
    steps, copied = view.part("Take it on"), "navigator.clipboard.readText()"
    steps.get_by_role("button", name="Copy", exact=True).click()
    code = f"import daylight; daylight.job({number}).load()"
    lab.until(lambda: lab.page.evaluate(copied) == code, "the code is in the clipboard")

    steps.get_by_text("Checkpoints", exact=True).click()
    (row,) = Client.connect(start=False, home=world.home).checkpoints(number)
    expect(steps.get_by_role("cell", name="best, latest")).to_be_visible()
    lab.shot("view-next-steps", of=view.root)
    steps.get_by_role("button", name="Copy command").click()
    command = f"%dl checkpoint download {number}.1 --step {row.step}"
    lab.until(lambda: lab.page.evaluate(copied) == command, "the command is in the clipboard")
    with lab.page.expect_download() as saved:
        steps.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == f"checkpoint-{number}.1-{row.id}.tar"
    with tarfile.open(saved.value.path()) as archive:
        assert f"checkpoint-{number}.1-{row.id}/model.safetensors" in archive.getnames()

    steps.get_by_role("button", name="Register as").click()
    steps.get_by_label("Best checkpoint as model").fill("no name")
    steps.get_by_role("button", name="Register", exact=True).click()
    expect(steps.get_by_role("alert")).to_contain_text("name")
    steps.get_by_label("Best checkpoint as model").fill("memes")
    steps.get_by_role("button", name="Register", exact=True).click()
    expect(steps.get_by_role("status")).to_have_text(f"registered as memes 1, step {row.step}")
    lab.panel.open().button("Models").click()
    models = lab.page.get_by_role("article", name="Models")
    models.get_by_label("Alias", exact=True).fill("production")
    models.get_by_label("Why").fill("it is good")
    models.get_by_label("Why").press("Enter")
    expect(models.get_by_role("table", name="Changes")).to_contain_text("production unset -> 1")
    lab.shot("models-tab")
    shown = daylight(world, "model", "memes").stdout
    assert "production unset -> 1" in shown
    assert "it is good" in shown
    models.get_by_role("table", name="Versions").get_by_role("button", name=f"#{number}").click()
    view = lab.view_in_tab()

    length = steps.get_by_label("epochs in all")
    expect(length).to_have_value("2")
    length.fill("1")
    steps.get_by_role("button", name="Continue").click()
    expect(steps.get_by_role("alert")).to_contain_text("give more, such as --epochs 2")
    length.fill("3")
    length.press("Enter")
    expect(steps).to_contain_text("submitted as #")
    longer = world.ended(number + 1)
    assert (longer.state, longer.experiment.config.epochs) == ("completed", 3)
    assert longer.experiment.begins_from == f"{number}.1/{row.id}"
    steps.get_by_role("button", name="Rerun").click()
    expect(view.part("Rerun").get_by_label("Hyperparameters")).to_be_focused()


def test_it_is_moved_to_another_pool(lab: Lab, gate: Gate, world: World):
    alone = gate.submit(world)
    lab.open()
    view = lab.tab(alone)
    view.until_it_moves()
    expect(view.button("Pause")).to_be_visible()
    view.button("More actions").click()
    expect(view.item("Edit")).to_be_visible()
    expect(view.item("Move")).to_be_hidden()  # the service has one pool
    lab.page.keyboard.press("Escape")
    client = world.serve()
    client.stop(alone)
    client.set_pool("cluster", PoolSettings(engine="slurm", partition="none"))
    try:
        number = gate.submit(world, pool="local,cluster")
        view = lab.tab(number)
        view.until_it_moves()
        view.choose("Move")
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
        view.button("More actions").click()
        expect(view.item("Rerun")).to_be_visible()
        expect(view.item("Move")).to_be_hidden()
    finally:
        client.remove_pool("cluster")


def test_curves_are_zoomed_together_and_lines_are_hidden(lab: Lab, world: World):
    number = world.submit(slots=1, epochs=3).experiment.number
    world.ended(number)
    lab.open()
    view = lab.tab(number)
    view.until_state("completed")
    plot, reset = view.curve.first, view.button("Reset zoom")
    training = plot.get_by_role("button", name=re.compile("^training"))
    expect(plot.get_by_role("button", name=re.compile("^validation"))).to_contain_text("best")
    over = plot.locator(".u-over")
    over.scroll_into_view_if_needed()
    caption = plot.locator("figcaption")
    over.hover()
    expect(caption).to_contain_text("epoch")
    pointed = caption.bounding_box()
    lab.page.mouse.move(0, 0)
    expect(caption).not_to_contain_text("epoch")
    assert caption.bounding_box() == pointed  # nothing moves with the pointer

    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    expect(reset).to_be_hidden()
    lab.page.mouse.move(box["x"] + 0.2 * box["width"], y)
    lab.page.mouse.down()
    lab.page.mouse.move(box["x"] + 0.6 * box["width"], y, steps=4)
    lab.page.mouse.up()
    expect(reset).to_be_visible()
    lab.shot("view-zoomed", of=view.root)
    over.dblclick()
    expect(reset).to_be_hidden()
    plots = view.root.get_by_role("group", name=re.compile("^Plots"))
    plots.press("+")
    expect(reset).to_be_visible()
    plots.press("Escape")
    expect(reset).to_be_hidden()

    training.click()
    expect(training).to_have_attribute("aria-pressed", "false")
    expect(plot.get_by_role("img")).not_to_have_accessible_name(re.compile("training"))
    training.click()
    expect(plot.get_by_role("img")).to_have_accessible_name(re.compile("training"))

    low, high = plot.get_by_label("y axis from"), plot.get_by_label("y axis to")
    expect(low).to_be_hidden()
    wide = plot.get_by_role("button", name="Full width")
    plots.focus()
    lab.tab_to(wide)
    lab.page.keyboard.press("Enter")
    expect(plot).to_have_css("width", plots.evaluate("node => getComputedStyle(node).width"))
    view.root.page.wait_for_function("canvas => canvas.clientHeight > 300", arg=plot.locator("canvas").element_handle())
    drawn = "node => node.toDataURL()"
    fitted = plot.locator("canvas").evaluate(drawn)
    low.fill("0.5")
    low.press("Enter")
    lab.until(lambda: plot.locator("canvas").evaluate(drawn) != fitted, "the plot is drawn with another range")
    lab.shot("view-full-width", of=view.root)
    lab.reload(kernel=False)
    expect(wide).to_have_attribute("aria-pressed", "true")
    expect(low).to_have_value("0.5")
    expect(high).to_have_value("")
    low.fill("")
    low.press("Enter")
    lab.until(lambda: plot.locator("canvas").evaluate(drawn) == fitted, "the plot is as before")
