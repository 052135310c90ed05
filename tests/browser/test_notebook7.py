"""Test the view in Jupyter Notebook 7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.jupyter import Jupyter
from tests.browser.lab import Lab
from tests.browser.notebooks import LOAD, Gate, kept, write
from tests.support.world import World

pytestmark = [pytest.mark.browser, pytest.mark.distributed, pytest.mark.notebook]


def test_notebook_7_shows_a_saved_experiment_and_a_live_one(
    pages: Callable[[Jupyter], Lab], applications: Callable[..., Jupyter], gate: Gate, world: World
):
    seven = applications("notebook", app="notebook")
    number = gate.submit(world, name="seven")
    world.reached(number, 1)
    write(seven.notebooks / "seven.ipynb", LOAD, f"%dl show {number}", output=kept(world, number))
    lab = pages(seven).open("seven.ipynb")
    lab.view().until_it_moves()
    lab.run(0, 1)
    lab.view().until_it_moves()
    lab.shot("notebook7")
    gate.open()
    lab.view().until_state("completed")
