"""Test views without a service, with other experiments of the same number, and with unusual names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from jupyter_ext.views import MIME_TYPE
from kernel_backend.client import Client
from tests.browser.faults import block_streams, empty_store, no_service, read_only
from tests.browser.jupyter import Jupyter
from tests.browser.lab import QUIET_MS, Lab
from tests.browser.notebooks import Gate, kept, write
from tests.browser.view import LATE
from tests.support.world import DEFINITION, World

pytestmark = [pytest.mark.browser, pytest.mark.distributed]

SCRIPT = "<img src=x onerror=alert(1)>\N{SUN WITH FACE}"
LINES = 50_000
WRITES = "POST .*/daylight/bundle/"
LISTS = "GET .*/daylight/api/experiments(\\?|$)"


def test_without_a_service_the_panel_says_what_to_do_and_tries_again(lab: Lab, world: World):
    with no_service(world):
        lab.open()
        panel = lab.panel.open()
        expect(panel.alert).to_contain_text("daylight serve", timeout=LATE)
        lab.shot("panel-no-service")
        # Here, where nothing else can make it go: once the service can start, the panel finds it by itself.
        before = lab.asked(LISTS)
        panel.button("Try again").click()
        lab.until(lambda: lab.asked(LISTS) > before, "the panel asks again")
    expect(panel.alert).to_be_hidden(timeout=LATE)
    expect(panel.meter).to_be_visible()


def test_an_experiment_that_is_gone_or_another_one_keeps_its_last_state_and_says_so(
    lab: Lab, jupyterlab: Jupyter, gate: Gate, world: World
):
    number = gate.submit(world, name="lost")
    world.reached(number, 1)
    Client.connect(start=False, home=world.home).pause(number)
    world.state(number, "paused")
    output = kept(world, number)
    write(jupyterlab.notebooks / "gone.ipynb", "pass", output=output)
    lab.open_without_kernel("gone.ipynb")
    view = lab.view(0)
    view.until_connection("live")
    assert not lab.changed()
    with empty_store(world):
        view.until_connection("gone")
        expect(view.note).to_contain_text("no longer there")
        expect(view.chip).to_have_text("paused")
        lab.shot("view-gone")
    view.button("Try now").click()
    view.until_connection("live")
    assert not lab.changed()

    output[MIME_TYPE]["overview"]["experiment"] |= {"created_at": 1.0, "snapshot": "0" * 64, "name": "mine"}
    write(jupyterlab.notebooks / "foreign.ipynb", "pass", output=output)
    lab.show_without_kernel("foreign.ipynb")
    view = lab.view(0)
    view.until_connection("foreign")
    expect(view.root).to_have_attribute("aria-label", f"Experiment #{number} mine")
    for name in ("Stop", "Pause", "Resume"):
        expect(view.button(name)).to_be_hidden()
    expect(view.root.get_by_text("Log", exact=True)).to_be_hidden()  # it would be that of the other experiment
    lab.shot("view-foreign")


@pytest.mark.long
def test_where_websockets_are_blocked_it_looks_now_and_then_and_a_notebook_for_reading_is_left_alone(
    lab: Lab, jupyterlab: Jupyter, gate: Gate, world: World
):
    number = gate.submit(world, name="behind a proxy")
    world.reached(number, 1)
    write(jupyterlab.notebooks / "proxy.ipynb", "pass", output=kept(world, number))
    block_streams(lab.page)
    read_only(lab.page, "proxy.ipynb")
    lab.open_without_kernel("proxy.ipynb")
    view = lab.view(0)
    expect(view.note).to_contain_text("websockets are blocked", timeout=LATE)
    view.until_it_moves()
    lab.shot("view-without-websockets")
    gate.open()
    view.until_state("completed")
    expect(view.note).to_be_empty()
    assert (lab.asked(WRITES), lab.changed()) == (0, False)


def test_names_are_text_whatever_they_hold_and_numbers_may_be_no_numbers(lab: Lab, world: World):
    definition = DEFINITION.replace(
        '{"error": ',
        f'{{"wild": target.abs().squeeze(1) / 0, "none": target.squeeze(1) * float("nan"), "{SCRIPT}": ',
    ).replace("pause=0.0):", f"pause=0.0, label={SCRIPT!r}):\n    print({SCRIPT!r})")
    name = f"{SCRIPT} " + "very long " * 12
    number = world.submit(definition, name=name, slots=1, epochs=2).experiment.number
    world.ended(number)
    lab.open()
    view = lab.tab(number)
    view.until_state("completed")
    expect(lab.panel.item(number)).to_contain_text(SCRIPT)
    expect(view.root).to_contain_text(SCRIPT)
    expect(view.root).to_contain_text(f"label='{SCRIPT}'")
    expect(view.root).to_contain_text("validation inf")
    expect(view.root).to_contain_text("validation nan")
    view.open_log()
    expect(view.log).to_contain_text(SCRIPT)
    assert lab.page.locator("img[src=x]").count() == 0
    lab.shot("view-wild-names")


def test_a_log_of_fifty_thousand_lines_is_read_from_its_end(lab: Lab, world: World):
    definition = DEFINITION.replace(
        "    return torch.utils", f"    for n in range({LINES}): print('line', n)\n    return torch.utils", 1
    )
    number = world.submit(definition, slots=1, epochs=1).experiment.number
    world.ended(number)
    lab.open()
    view = lab.tab(number)
    view.open_log()
    expect(view.log).to_contain_text(f"line {LINES - 1}", timeout=LATE)
    drawn = view.log.evaluate("node => node.textContent.split('\\n').length + node.querySelectorAll('*').length")
    assert drawn <= 2_000
    frame = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
    assert lab.page.evaluate(frame)
    lab.shot("view-long-log")


@pytest.mark.long
def test_many_views_of_one_experiment_are_all_live_and_write_back_in_peace(
    pages: Callable[[Jupyter], Lab], jupyterlab: Jupyter, gate: Gate, world: World
):
    number = gate.submit(world, name="shared")
    world.reached(number, 1)
    output = kept(world, number)
    labs = []
    for name in ("one.ipynb", "two.ipynb"):
        write(jupyterlab.notebooks / name, "pass", output=output)
        labs.append(pages(jupyterlab).open_without_kernel(name))
    for lab in labs:
        lab.view(0).until_it_moves()
    labs[0].tab(number).until_it_moves()
    gate.open()
    labs[0].view_in_tab().until_state("completed")
    labs[0].command("docmanager:open", path="one.ipynb")
    for lab, name in zip(labs, ("one.ipynb", "two.ipynb"), strict=True):
        lab.view(0).until_state("completed")
        lab.until_kept("completed", index=0)
        lab.until_quiet(WRITES)
        lab.save()
        saved = lab.saved(name).cells[0].outputs[0].data
        assert saved[MIME_TYPE]["overview"]["experiment"]["state"] == "completed"
        assert "completed" in saved["text/html"]
    written = [lab.asked(WRITES) for lab in labs]
    labs[0].page.wait_for_timeout(QUIET_MS)
    assert [lab.asked(WRITES) for lab in labs] == written
    assert not any(lab.changed() for lab in labs)
