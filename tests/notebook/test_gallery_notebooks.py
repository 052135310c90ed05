"""Test the notebooks of the gallery, one for each kind of model, with one shared service.

Each of them runs in `test_small_notebooks.py` as well, with trainings of a small size.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.notebook.cells import printed, shown
from tests.support.locked import kernel_of_tensorflow

CELL_S = 200
FEWER = {"text": [("--epochs 4", "--epochs 2")]}

pytestmark = [pytest.mark.long, pytest.mark.notebook, pytest.mark.distributed]


@pytest.fixture
def said(executed: Callable[..., list[Any]]) -> Any:
    """Run a notebook of `binder/` that draws one picture, and return the numbers that its last cell prints."""

    def said(name: str, kernel: str = "python3") -> list[float]:
        ran = executed(name, CELL_S, *FEWER.get(name, []), kernel=kernel)
        cells = [cell for cell in ran if cell.cell_type == "code"]
        drawn = [each for cell in cells if "plt." in cell.source for each in shown(cell) if "image/png" in each]
        assert len(drawn) == 1
        return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", printed(cells[-1]))]

    return said


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("raw-loop", 90),
        ("keras", 90),
        ("cnn", 90),
        ("text", 80),
        ("contrastive", 90),
    ],
    ids=lambda each: str(each),
)
def test_a_network_learns_what_its_notebook_says(said, name, least):
    (percent,) = said(name)
    assert percent >= least


def test_a_keras_model_learns_on_tensorflow(said, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    (percent,) = said("keras-tensorflow", kernel=kernel_of_tensorflow(tmp_path))
    assert percent >= 90


def test_series_of_any_length_are_forecast(said):
    _, off, still = said("time-series")
    assert off < still / 1.15


def test_points_are_made_of_noise(said):
    distance, noise = said("diffusion")
    assert distance < noise / 2


def test_an_adapter_learns_what_the_frozen_model_does_not_know(said):
    before, after, trained = said("lora")
    assert before < 50 < 65 <= after
    assert trained < 20_000
