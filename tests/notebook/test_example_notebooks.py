"""Test the example notebooks: each runs from top to bottom in a real kernel, on two slots.

Each of them runs in `test_small_notebooks.py` as well, with trainings of a small size.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

Executed = Callable[..., list[Any]]

CELL_S = 600  # searches and two slots take their time

pytestmark = [pytest.mark.long, pytest.mark.notebook, pytest.mark.distributed]


def text(cell: Any) -> str:
    """Return all outputs of a cell as plain text."""
    plain = (each.get("text") or each.get("data", {}).get("text/plain", "") for each in cell.get("outputs", ()))
    return "".join(plain)


def pictures(cells: list[Any]) -> int:
    """Count the pictures in the outputs of cells without a magic."""
    drawn = [each for cell in cells if "%dl" not in cell.source for each in cell.get("outputs", ())]
    return sum("image/png" in each.get("data", {}) for each in drawn)


def test_a_search_finds_a_network_that_knows_digits_in_less_than_all_epochs(executed: Executed):
    cells = executed("search", CELL_S)
    said = next(text(cell) for cell in cells if "epochs trained instead of 192" in text(cell))
    assert int(said.split()[0]) <= 96
    assert float(text(cells[-2]).split("%")[0]) >= 90
    assert pictures(cells) == 1


def test_an_architecture_is_found_drawn_and_trained_alone(executed: Executed):
    cells = executed("architectures", CELL_S)
    assert pictures(cells) == 2
    alone = text(cells[-1])
    assert "completed" in alone
    assert "epoch 12/12" in alone


def test_a_gan_draws_digits_that_are_nearer_to_real_ones_than_to_noise(executed: Executed):
    cells = executed("gan", CELL_S, ("--epochs 40", "--epochs 20"))
    assert pictures(cells) == 1
    drawn, real, noise = map(float, re.findall(r"\d+\.\d", text(cells[-1])))
    assert drawn < (real + noise) / 2


def test_a_policy_learns_to_keep_a_pole_upright(executed: Executed):
    cells = executed("reinforce", CELL_S)
    assert pictures(cells) == 1
    trained, untrained = map(int, re.findall(r"\d+", text(cells[-1])))
    assert trained > 3 * untrained


def test_a_lightning_module_trains_as_it_is_written(executed: Executed):
    cells = executed("lightning", CELL_S)
    assert "lightning: LitDigits (as module) Digits (as datamodule)" in text(
        next(c for c in cells if "Trainer(" in c.source)
    )
    assert float(re.findall(r"LitDigits: (\d+\.\d)%", text(cells[-1]))[0]) >= 90


def test_a_trainer_of_hugging_face_trains_as_it_is_written(executed: Executed):
    cells = executed("hugging-face", CELL_S, ("num_train_epochs=10", "num_train_epochs=6"))
    assert "trainer: Trainer, its model and data" in text(next(c for c in cells if "Trainer(model" in c.source))
    assert float(re.findall(r"ViTForImageClassification: (\d+\.\d)%", text(cells[-1]))[0]) >= 80
