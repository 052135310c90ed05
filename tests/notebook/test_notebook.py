"""Test a user's notebook, from the first cell to the trained model."""

from __future__ import annotations

import re

import pytest

from tests.notebook.cells import Run, error, printed, shown

pytestmark = pytest.mark.notebook

IMPORTS = """import torch
from torch import nn
from sklearn.datasets import load_digits
"""
DATA = """# The digits, as one dataset.
def dataset():
    x, y = load_digits(return_X_y=True)
    return torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y))
"""
ROLES = """
def train_data(dataset):      return torch.utils.data.Subset(dataset, range(0, 1500))
def validation_data(dataset): return torch.utils.data.Subset(dataset, range(1500, 1797))
def model(width=64, dropout=0.1):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 10))
def optimizer(params, lr=1e-2): return torch.optim.AdamW(params, lr=lr)
def metrics(output, target): return {"accuracy": (output.argmax(1) == target).float()}
def loss(output, target):
"""
GOOD = ROLES + "    return nn.functional.cross_entropy(output, target)\n"
BAD = ROLES + "    raise ValueError('boom')\n"


@pytest.fixture(scope="module")
def cells(execute: Run):
    return execute(
        "%load_ext daylight",
        IMPORTS,
        DATA,
        f"%%dlsubmit --slots 2 --epochs 3 --name digits --out job width=32{GOOD}",
        "import daylight\nnet = daylight.job(1).load(best=True)\n"
        "x, y = zip(*validation_data(dataset()))\n"
        "same = (net(torch.stack(x)).argmax(1) == torch.stack(y)).float().mean().item()\n"
        "print(job.status, abs(same - job.best()['accuracy']) < 1e-6, len(job.metrics('validation')))",
        "%dl list",
        "%dl metrics 1 --kind validation",
        "%dl source 1",
        f"%%dlsubmit --slots 2 wdth=32{GOOD}",
        f"%%dlsubmit{BAD}",
        "%dl logs 2",
        "numbers = [1, 2, 6]",
        "%%dlrun --back squares --wait --out job\nsquares = [n * n for n in numbers]\nsum(numbers) / len(numbers)",
        "print(job.result(), job.result('squares'), 'squares' in globals())",
        "%%dlrun --slots 2\n1 + 1",
        "%%dlrun --wait --out failing\nnumbers[0] / 0",
        "print(len(failing.overview.attempts), failing.overview.trials[0].attempt)",
        r"%dlsubmit --wait --out program --metric-pattern 'score (?P<score>\d+)' score=5 -- echo score {score}",
        "print(program.status, float(program.metrics()['score'][0]), program.logs())",
    )


def test_a_cell_waits_and_says_how_good_the_model_is(cells):
    text = printed(cells[3])
    assert error(cells[3]) is None, text
    assert "lines from cells 2, 3 and 4" in text
    assert "functions: train_data validation_data model optimizer metrics loss -> 2 slots" in text
    # A line of its own for each validation; one that only says how long nothing came goes on behind the accuracy.
    accuracies = re.findall(r"^#1  epoch \d/3  step \d+  loss \S+  accuracy (\S+)$", text, re.MULTILINE)
    assert len(accuracies) == 3
    assert float(accuracies[-1]) > 0.8


def test_the_result_stays_in_the_notebook_once(cells):
    (bundle,) = shown(cells[3])
    assert "completed" in bundle["text/html"]
    assert "accuracy" in bundle["text/plain"]
    assert bundle["image/png"]
    assert "completed" in bundle["text/plain"]
    assert "completed" not in printed(cells[3])  # papermill's log has both
    assert "lines from cells" not in bundle["text/plain"]


def test_the_definitions_exist_in_the_notebook_and_the_weights_come_back(cells):
    assert error(cells[4]) is None, error(cells[4])
    assert printed(cells[4]).split() == ["completed", "True", "3"]


def test_lists_metrics_and_source_are_shown(cells):
    assert "digits" in shown(cells[5])[0]["text/plain"]
    assert shown(cells[6])[0]["text/html"].count("<tr>") == 4
    assert "# cell [3]\n# The digits, as one dataset.\ndef dataset():" in printed(cells[7])


def test_a_typo_is_told_before_anything_is_submitted(cells):
    assert error(cells[8]).ename == "InvalidDefinition"
    assert "wdth is no hyperparameter (did you mean width?)" in error(cells[8]).evalue


def test_a_failure_is_told_by_cell_and_line_without_our_frames(cells):
    failed = error(cells[9])
    assert failed.ename == "ExperimentFailed"
    text = "\n".join(failed.traceback)
    assert "ValueError: boom" in text
    assert "cell [10] line 9, in loss" in text
    assert "raise ValueError('boom')" in text
    assert "kernel_backend" not in text
    assert "boom" in printed(cells[10])


def test_any_cell_runs_as_a_job_and_its_values_come_back(cells):
    assert error(cells[12]) is None, error(cells[12])
    assert "plain: the cell as it is, in one process -> 1 slot" in printed(cells[12])
    assert printed(cells[13]).split("\n")[-2:] == ["3.0 [1, 4, 36] True", ""]
    assert error(cells[14]).evalue.startswith("--slots is for")


def test_an_error_of_any_cell_is_told_by_its_line_and_not_tried_again(cells):
    failed = "\n".join(error(cells[15]).traceback)
    assert "ZeroDivisionError" in failed
    assert "cell [16] line 2" in failed
    assert "kernel_backend" not in failed
    assert printed(cells[16]) == "1 1\n"


def test_a_command_runs_as_it_is(cells):
    assert error(cells[-2]) is None, printed(cells[-2])
    assert "command: echo score {score} -> 1 slot" in printed(cells[-2])
    assert printed(cells[-1]).split() == ["completed", "5.0", "score", "5"]
