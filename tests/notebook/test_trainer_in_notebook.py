"""Test that a notebook trains nothing itself when a job trains the Trainer of a cell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notebook.cells import Run, error, printed

pytestmark = pytest.mark.notebook

IMPORTS = "import torch\nfrom pathlib import Path\nfrom transformers import Trainer, TrainingArguments"
MODEL = """class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
    def forward(self, x, labels):
        out = self.line(x)
        return {"loss": (out - labels).square().mean(), "logits": out}
data = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 8
class Mine(Trainer):
    def train(self, *args, **words):
        Path("trained_here").touch()
        return super().train(*args, **words)
"""
MAKE = """net = Net()
args = TrainingArguments("out", num_train_epochs=1, report_to="none")
trainer = Mine(model=net, args=args, train_dataset=data)
"""
TRAIN = "trainer.train()\ntrainer.save_model('final')"
SEEN = "print('trainer' in globals(), Path('trained_here').exists(), Path('final').exists())"


@pytest.fixture(scope="module")
def cells(execute: Run) -> list[Any]:
    return execute(
        "%load_ext daylight",
        IMPORTS,
        MODEL,
        f"%%dlsubmit --max-restarts 0 --no-wait --no-values\n{MAKE}{TRAIN}",
        SEEN,
        MAKE,
        f"%%dlsubmit --max-restarts 0 --no-wait\n{TRAIN}",
        SEEN,
        "%dl stop 1\n%dl stop 2",
    )


def test_a_trainer_whose_class_is_of_earlier_cells_trains_in_the_job_alone(cells: list[Any]):
    assert error(cells[3]) is None, error(cells[3])
    assert printed(cells[4]) == "False False False\n"


def test_a_cell_that_only_trains_does_so_in_the_job_alone(cells: list[Any]):
    assert error(cells[6]) is None, error(cells[6])
    assert printed(cells[7]) == "True False False\n"
