"""Test interactive notebooks: cells return at once, and an interrupt stops only the waiting."""

from __future__ import annotations

import pytest

from jupyter_ext.values.awaited import MARK
from tests.notebook.cells import Kernel, Notebook
from tests.support.world import DEFINITION, World, until

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def notebook(kernel: Kernel) -> Notebook:
    notebook = Notebook(kernel.manager, kernel.client)
    notebook.run("%load_ext daylight")
    return notebook


def test_a_cell_returns_at_once_and_shows_where_its_experiment_is(notebook: Notebook, world: World):
    text = notebook.run(f"%%dlsubmit --slots 1 --epochs 500 --backend torch --out job pause=0.2{DEFINITION}")
    assert "#1 " in text
    assert "%dl show 1 looks again, %dl stop 1 ends it" in text
    assert "error" not in notebook.kinds()
    assert world.overview(1).state in ("queued", "starting", "running")


def test_it_can_be_looked_at_again_paused_and_resumed(notebook: Notebook, world: World):
    world.reached(1, 1)
    assert "/500" in notebook.run("%dl show 1")
    notebook.run("%dl pause 1")
    world.state(1, "paused")
    assert "paused" in notebook.run("job")
    notebook.run("job.resume()")
    until(lambda: world.overview(1).state == "running", "#1 goes on")


def test_an_interrupt_ends_the_waiting_and_not_the_experiment(notebook: Notebook, world: World):
    cell = f"%%dlsubmit --again --slots 1 --epochs 500 --backend torch --wait pause=0.2{DEFINITION}"
    text = notebook.run(cell, interrupt_when="#2 ")
    assert "#2 continues in the background; %dl stop 2 ends it" in text
    assert "error" not in notebook.kinds()
    assert world.overview(2).experiment.state == "active"


def test_stop_ends_them(notebook: Notebook, world: World):
    for number in (1, 2):
        assert "stop" in notebook.run(f"%dl stop {number}")
        world.state(number, "stopped")
    assert "came back" in notebook.run("job.wait(); print('came back')")


def test_waiting_draws_one_card_again_and_again(notebook: Notebook, world: World):
    text = notebook.run(f"%%dlsubmit --slots 1 --backend torch --wait{DEFINITION}")
    displayed = [each["content"] for each in notebook.outputs if each["msg_type"] == "display_data"]
    assert "completed" in text
    assert [MARK in each["metadata"] for each in displayed] == [False, True]  # the card, and what came back
    assert "update_display_data" in notebook.kinds()
