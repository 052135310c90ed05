"""Test cells with a training loop in a real notebook: submitted unchanged, watched, loaded and searched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notebook.cells import Run, error, printed

pytestmark = pytest.mark.notebook

SETUP = """import time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm
torch.manual_seed(0)
x = torch.randn(96, 4)
y = (x.sum(1) > 0).long()
train_loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True)
val_x, val_y = x[64:], y[64:]
"""
LOOP = """
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, width), nn.Linear(width, 2)
    def forward(self, x):
        return self.outer(F.relu(self.inner(x)))
lr, width = 1e-2, 16
EPOCHS = 2
model = Net(width)
optimizer = torch.optim.Adam(model.parameters(), lr=lr)
began = time.time()
for epoch in range(EPOCHS):
    running = 0.0
    for a, b in tqdm(train_loader, desc=f"epoch {epoch}"):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        running += loss.item()
    with torch.no_grad():
        val_acc = (model(val_x).argmax(1) == val_y).float().mean().item()
    print(f"Epoch {epoch + 1}/{EPOCHS}: loss {running / len(train_loader):.4f}, val acc {val_acc:.2%}")
"""
MAIN = """
def main(width=8):
    epochs = 1
    net = nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for a, b in train_loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(a), b).backward()
            opt.step()
"""
OPTIONS = "--metric val_acc:max --threads 1 --wait"


@pytest.fixture(scope="module")
def cells(execute: Run) -> list[Any]:
    return execute(
        "%load_ext daylight",
        SETUP,
        f"%%dlsubmit lr=5e-2 --epochs 3 {OPTIONS} --out job{LOOP}",
        "print(job.status, job.params, 'model' in globals(), 'Net' in globals(), EPOCHS)",
        "told = job.metrics('validation')\n"
        "print(list(told['step']), list(told['epoch']), len(job.metrics('training')))",
        "net = job.load()\ninner = job.load('model', best=True)\n"
        "hits = (inner(val_x.clone()).argmax(1) == val_y.clone()).float().mean().item()\n"
        "print(type(net) is Net, net.training, round(100 * hits, 2) == job.best()['val_acc'])",
        "job.load('modle')",
        f"%%dlsubmit --dry-run width=8{LOOP}",
        f"%%dlsubmit learning_rate=3{LOOP}",
        f"%%dlsubmit --batch-size 3{LOOP}",
        "%dl rerun 1 --wait",
        MAIN.lstrip(),
        "%%dlsubmit --threads 1 --wait --epochs 2 --out second\nmain()",
        "print(second.load('net'), second.overview.front.epoch)",
        f"%%dlsubmit --search random --trials 2 lr=1e-3..1e-1:log {OPTIONS} --out search{LOOP}",
        "print(search.status, sorted(search.trials()['state']), 'val_acc' in search.best())",
        f"%%dlsubmit --as-script width=4{LOOP}",
        "longer = job.continue_training(5, tags=['longer'], note='to 5').wait()\n"
        "printed = [line for line in longer.logs().splitlines() if line.startswith('Epoch')]\n"
        "print(longer.status, [line[:9] for line in printed], longer.overview.trials[0].step,"
        " longer.overview.experiment.tags, longer.overview.experiment.note)\n"
        "%dl facts 1",
        f"%%dlsubmit --search pbt --epochs 10 --trials 2 lr=1e-3..1e-1:log {OPTIONS}{LOOP}",
    )


def test_a_loop_is_trained_as_it_stands_with_the_values_of_the_line(cells: list[Any]):
    assert "script: epochs in cell [3] line 13, batches in cell [3] line 15 -> 1 slot" in printed(cells[2])
    assert "note: a cell that reads a, b, began, epoch, loss, model and 3 more waits for this job" in printed(cells[2])
    assert printed(cells[3]) == "completed {'lr': 0.05, 'width': 16} True True 2\n"
    assert printed(cells[4]) == "[4, 8, 12] [1.0, 2.0, 3.0] 12\n"


def test_its_module_is_loaded_by_name_and_the_best_is_the_one_that_the_metric_names(cells: list[Any]):
    assert error(cells[5]) is None, error(cells[5])
    assert printed(cells[5]) == "True False True\n"
    assert "the program has no module modle (did you mean model?); there are: model" in error(cells[6]).evalue


def test_the_dry_run_tells_loops_values_and_what_is_presumed(cells: list[Any]):
    lines = printed(cells[7]).splitlines()
    assert "# script: epochs in cell [8] line 13, batches in cell [8] line 15" in lines
    assert "# presumed exact to the step" in lines
    assert "# width = 8" in lines


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (8, "learning_rate is no hyperparameter; there are: lr width"),
        (9, "--batch-size is for definitions of functions, and the program's own loop takes the steps"),
    ],
)
def test_what_cannot_be_given_is_refused(cells: list[Any], cell: int, message: str):
    assert message in error(cells[cell]).evalue


def test_a_rerun_gives_the_same_bits_whatever_the_clock_says(cells: list[Any]):
    assert "bit-identical" in printed(cells[10])


def test_a_cell_that_only_calls_a_loop_of_another_cell_is_trained(cells: list[Any]):
    assert error(cells[12]) is None, error(cells[12])
    assert printed(cells[13]) == "Linear(in_features=4, out_features=2, bias=True) 2.0\n"


def test_a_search_goes_by_a_name_of_the_program(cells: list[Any]):
    assert error(cells[14]) is None, error(cells[14])
    assert printed(cells[15]) == "completed ['completed', 'completed'] True\n"


def test_the_script_is_the_program_with_its_values(cells: list[Any]):
    assert "lr, width = (0.01, 4)" in printed(cells[16])
    assert "daylight" not in printed(cells[16])


def test_a_completed_loop_is_continued_with_more_epochs(cells: list[Any]):
    assert error(cells[17]) is None, error(cells[17])
    first, *facts = printed(cells[17]).splitlines()
    assert first == "completed ['Epoch 1/3', 'Epoch 2/3', 'Epoch 3/3', 'Epoch 4/5', 'Epoch 5/5'] 20 ('longer',) to 5"
    assert any("step 0" in each for each in facts)
    assert not any("0 samples" in each for each in facts)


def test_a_search_that_changes_values_midway_is_refused(cells: list[Any]):
    assert "--search pbt gives a trial other values while it trains" in error(cells[18]).evalue
