"""Test that settings of packages are captured with a cell that imports these packages, and with what uses them."""

from __future__ import annotations

import sys
import types

import pytest

from jupyter_ext.capture import capture_cell

USE = "import torch\ndef model(): return torch.nn.Linear(1, 1)"


def test_what_is_set_in_a_package_that_nobody_needs_stays_behind():
    history = ["import seaborn as sns\nsns.set_theme()", "import decimal\ndecimal.getcontext().prec = 5"]
    assert capture_cell(history, USE).source.startswith("# cell [3]")


def test_a_module_of_the_project_brings_what_is_set_in_what_it_uses(monkeypatch: pytest.MonkeyPatch, tmp_path):
    import decimal

    local = types.ModuleType("prices_of_the_project")
    local.__file__, local.Decimal = str(tmp_path / "prices_of_the_project.py"), decimal.Decimal  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, local.__name__, local)
    history = ["import decimal\ndecimal.getcontext().prec = 5"]
    target = "from prices_of_the_project import Decimal\ndef model(): return Decimal(1) / 3"
    assert "decimal.getcontext().prec = 5" in capture_cell(history, target).source
    local.__file__ = str(tmp_path / "site-packages" / "prices.py")
    assert "prec" not in capture_cell(history, target).source


def test_what_is_set_in_torch_always_comes_along_for_it_trains_the_cell():
    history = ["import torch\ntorch.set_float32_matmul_precision('high')", "net = 1"]
    assert "set_float32_matmul_precision" in capture_cell(history, "def model(): return make()", {"make": max}).source


def test_what_is_set_after_an_earlier_use_is_not_set_before_it():
    history = ["import decimal\nx = decimal.Decimal(1) / 3", "decimal.getcontext().prec = 5"]
    source = capture_cell(history, "def model(): return x").source
    assert "prec" not in source
