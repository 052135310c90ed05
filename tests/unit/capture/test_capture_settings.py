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


# How a tracker or another package is set up in a cell of its own, and how the submitted cell uses it.
SET_UP = {
    "a tracker": ("import wandb", "wandb.init(project='p')", "wandb.log({'loss': 1})"),
    "a tracker with a run": ("import wandb", "run = wandb.init(project='p')", "wandb.log({'loss': 1})"),
    "a run that is used": ("import wandb", "run = wandb.init(project='p')", "run.log({'loss': 1})"),
    "a function of its own": ("import wandb\nfrom wandb import init", "init(project='p')", "wandb.log({'loss': 1})"),
    "an experiment": ("import mlflow", "mlflow.set_experiment('p')", "mlflow.log_metric('loss', 1)"),
    "an address": ("import mlflow", "mlflow.set_tracking_uri('x')", "mlflow.log_metric('loss', 1)"),
    "a run": ("import mlflow", "mlflow.start_run()", "mlflow.log_metric('loss', 1)"),
    "what logs by itself": ("import mlflow", "mlflow.autolog()", "print(1)"),
    "what logs a library by itself": ("import mlflow", "mlflow.pytorch.autolog()", "print(1)"),
    "a task": ("from clearml import Task", "Task.init(project_name='p')", "Task.current_task()"),
    "comet": ("import comet_ml", "comet_ml.init(project_name='p')", "comet_ml.Experiment()"),
    "neptune": ("import neptune", "run = neptune.init_run()", "run['loss'].append(1)"),
    "a cluster": ("import ray", "ray.init(num_cpus=1)", "ray.get(1)"),
    "a theme": ("import seaborn as sns", "sns.set_theme()", "sns.lineplot([1])"),
    "a kind of numbers": ("import torch", "torch.set_default_dtype(torch.float64)", "print(1)"),
    "a log": ("import logging", "logging.basicConfig(level='INFO')", "logging.info('a')"),
    "warnings": ("import warnings", "warnings.filterwarnings('error')", "warnings.warn('a')"),
}


@pytest.mark.parametrize(("imports", "call", "use"), SET_UP.values(), ids=SET_UP)
def test_what_sets_a_package_up_in_a_cell_of_its_own_comes_along_with_its_use(imports: str, call: str, use: str):
    target = f"net = torch.nn.Linear(1, 1)\nfor _ in range(2):\n    net(torch.ones(1)).backward()\n    {use}"
    assert call in capture_cell(["import torch", imports, call], target).source


def test_a_tracker_whose_run_has_ended_begins_the_next_one():
    history = ["import wandb", "wandb.init(name='a')", "wandb.finish()", "wandb.init(name='b')"]
    source = capture_cell(history, "def model(): return wandb.run").source
    assert source.index("'a'") < source.index("finish") < source.index("'b'")


def test_a_tracker_that_a_cell_does_not_use_stays_behind():
    assert "wandb" not in capture_cell(["import wandb", "wandb.init()"], USE).source
