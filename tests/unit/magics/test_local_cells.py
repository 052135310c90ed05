"""Test `%%dlsubmit --local` and `--as-script` in a kernel."""

from __future__ import annotations

import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.magics import magics
from tests.notebooks.kernel import shell

ROLES = """import torch
def train_data(): return [(torch.zeros(1) + START, torch.zeros(1))] * 8
def model(): return torch.nn.Linear(1, 1)
def loss(output, target):
    return (output - target).square().mean()
"""


@pytest.fixture
def kernel() -> InteractiveShell:
    made = shell()
    magics.load(made)
    made.run_cell("START = 3\nmodel = 'the notebook has one'", store_history=True)
    return made


def test_a_cell_trains_here_with_what_it_takes_of_others(
    kernel: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kernel.run_cell(
        "%%dlsubmit --local --steps 2 --batch-size 4 --out net\n" + ROLES, store_history=True
    ).success
    assert "training at step 2 (epoch 1): loss" in capsys.readouterr().out
    assert type(kernel.user_ns["net"]).__name__ == "Linear"
    assert callable(kernel.user_ns["loss"])
    assert kernel.user_ns["model"] == "the notebook has one"


def test_an_interrupt_of_the_cell_binds_the_model_as_it_is(kernel: InteractiveShell) -> None:
    cell = ROLES.replace("return (output", "raise KeyboardInterrupt\n    return (output")
    assert kernel.run_cell("%%dlsubmit --local --out net\n" + cell, store_history=True).success
    assert type(kernel.user_ns["net"]).__name__ == "Linear"


def test_a_breakpoint_stops_in_the_cells_function(kernel: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stopped.append(sys._getframe(1).f_code.co_name))
    cell = ROLES.replace("return (output", "breakpoint()\n    return (output")
    assert kernel.run_cell("%%dlsubmit --local --steps 2\n" + cell, store_history=True).success
    assert stopped == ["loss", "loss"]


def test_a_cell_is_printed_as_a_script(kernel: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert kernel.run_cell("%%dlsubmit --as-script --epochs 3\n" + ROLES, store_history=True).success
    printed = capsys.readouterr().out
    assert "START = 3" in printed
    assert '"--epochs", type=int, default=3' in printed
