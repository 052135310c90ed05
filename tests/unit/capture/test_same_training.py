"""Test that a job does not repeat a training that the notebook tried out, if the submitted cell has the same one."""

from __future__ import annotations

from jupyter_ext.capture import capture_cell
from jupyter_ext.capture.cells import Cell

SETUP = """import torch
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=1)
"""
LOOP = "for step in range(3):\n    model(torch.randn(4, 2)).sum().backward()\n    opt.step()\n"
FUNCTION = "def fit(model):\n    for step in range(3):\n        model(torch.randn(4, 2)).sum().backward()\n"


def test_a_loop_that_was_tried_is_left_out_with_a_note():
    capture = capture_cell([SETUP, LOOP], LOOP, line=2)
    assert capture.source.count("backward") == 1
    assert capture.warnings == ("cell [2] line 1 has run this training in the notebook: the job begins without it",)


def test_a_call_that_trains_is_left_out_too_but_what_stands_beside_it_stays():
    capture = capture_cell([SETUP, f"{FUNCTION}model.bias.data.zero_()\nfit(model)\n"], "fit(model)\n", line=2)
    assert capture.source.count("fit(model)") == 2  # the definition, and the submitted call
    assert "model.bias.data.zero_()" in capture.source


def test_an_interrupted_loop_is_left_out():
    cells = [Cell(SETUP, number=1), Cell(LOOP, error_line=2, number=2)]
    assert capture_cell(cells, LOOP, line=2).source.count("backward") == 1


def test_another_training_is_repeated_with_a_note():
    capture = capture_cell([SETUP, LOOP.replace("3", "5")], LOOP, line=2)
    assert capture.source.count("backward") == 2
    (told,) = capture.warnings
    assert told.startswith("cell [2] line 1 trains something, and runs again in every job: the curves begin with its")


def test_draws_since_the_seed_are_not_repeated_for_a_cell_that_trains():
    capture = capture_cell([SETUP, "import mystery\nnet = mystery.load()\n", "torch.rand(3)\n"], LOOP, line=2)
    assert "manual_seed(0)" in capture.source
    assert "mystery" not in capture.source
    assert "torch.rand(3)" not in capture.source
    assert "torch.rand(3)" in capture_cell([SETUP, "torch.rand(3)\n"], "x = torch.rand(1)\n", line=2).source
