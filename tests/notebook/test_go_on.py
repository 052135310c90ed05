"""Test that cells go on with what a job has set: they wait for it, get its values, or fail with its error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.cells import Kernel, Notebook
from tests.notebook.conftest import started
from tests.support.world import World

pytestmark = pytest.mark.notebook

SETUP = """
import torch
from torch import nn
torch.manual_seed(0)
data = torch.randn(32, 4)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)
    def forward(self, x):
        return self.inner(x)
def judged():
    return round(model(data).abs().sum().item(), 4)
model, before = Net(), None
"""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history, lossi = [], []
for epoch in range(4):
    loss = model(data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    lossi.append(epoch)
rows = (each for each in lossi)
"""
ENDLESS = """
import time
best = 0
for step in range(10**6):
    loss = model(data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = step
    time.sleep(0.05)
"""
FUNCTIONS = """
def train_data():
    return [(each, each.sum(0, keepdim=True)) for each in data]
def validation_data():
    return train_data()
def model():
    return nn.Linear(4, 1)
def loss(output, target):
    return (output - target).square().mean()
def metrics(output, target):
    return {"error": (output - target).abs().flatten()}
"""
SUBMIT = "%%dlsubmit --threads 1 --no-rehearsal --no-wait"


@pytest.fixture(scope="module")
def notebook(kernel: Kernel) -> Notebook:
    notebook = Notebook(kernel.manager, kernel.client)
    notebook.run("%load_ext daylight")
    notebook.run(SETUP)
    return notebook


@pytest.fixture(scope="module")
def trained(notebook: Notebook, world: World) -> str:
    """Provide what the cell says that submits a training; its job has not ended yet when the next cells run."""
    notebook.run("before = judged()")
    said = notebook.run(f"{SUBMIT}{LOOP}")
    assert notebook.run("lossi = 'of the user'; print(len(data))").strip() == "32"
    return said


def test_the_submitted_cell_says_which_names_come_back(trained: str) -> None:
    assert "a cell that reads epoch, history, loss, lossi, model, optimizer and 1 more waits for this job" in trained


def test_a_cell_that_reads_a_name_gets_all_values_at_once(trained: str, notebook: Notebook, world: World) -> None:
    text = notebook.run(
        "print(judged() == before, len(history), optimizer.param_groups[0]['params'][0] is model.inner.weight)"
    )
    assert "from #1: history, model, optimizer, epoch, loss" in text
    assert text.rstrip().endswith("False 4 True")
    assert notebook.run("print(type(model) is Net, epoch)").strip() == "True 3"


def test_what_the_user_has_set_since_stays_and_the_jobs_can_be_had_beside_it(trained: str, notebook: Notebook) -> None:
    assert notebook.run("print(lossi)").strip() == "of the user"
    assert "from #1: theirs" in notebook.run("%dl values 1 lossi --as theirs")
    assert notebook.run("print(theirs, lossi)").strip() == "[0, 1, 2, 3] of the user"


def test_another_kernel_of_the_notebook_gets_them_too(trained: str, kernels: Path, world: World) -> None:
    with started(world, kernels) as kernel:
        other = Notebook(kernel.manager, kernel.client)
        other.run("%load_ext daylight")
        other.run(f"{SETUP}\nimport daylight\ndaylight.job(1).wait()")
        assert "from #1: epoch, history, loss, lossi, model, optimizer" in other.run("%dl values 1")
        text = other.run("print(type(model) is Net, len(history), optimizer.param_groups[0]['params'][0].shape)")
        assert text.strip() == "True 4 torch.Size([1, 4])"


def test_a_value_that_cannot_come_fails_the_cell_that_reads_it(trained: str, notebook: Notebook) -> None:
    for _ in range(2):
        text = notebook.run("print('ran'); next(rows)")
        assert "rows could not come back from #1: a generator cannot be pickled (TypeError: " in text
        assert "ran" not in text.split("\n")
    assert notebook.run("rows = iter('ab'); print(next(rows))").strip() == "a"


def test_another_cell_trains_the_jobs_model_on(trained: str, notebook: Notebook, world: World) -> None:
    one_more = "\nfor epoch in range(1):\n    loss = model(data).square().mean()\n    loss.backward()\n"
    notebook.run("reached = history[-1]")
    notebook.run(f"{SUBMIT}{one_more}")
    assert notebook.run("print(loss.item() < reached)").strip().endswith("True")


def test_a_job_that_fails_fails_the_cell_that_waits_and_then_lets_it_run(trained: str, notebook: Notebook) -> None:
    cell = "\nscore = data.mean()\nfor epoch in range(1):\n    model(data).sum().backward()\n1 / 0"
    notebook.run(f"{SUBMIT} --max-restarts 0{cell}")
    text = notebook.run("print(score)")
    assert "experiment #3 failed: ZeroDivisionError: division by zero" in text
    assert "score would have come from #3; run the cell again to use what the notebook has" in text
    assert "NameError" in notebook.run("score") or "is not defined" in notebook.run("score")


def test_an_interrupt_ends_the_waiting_and_not_the_job(trained: str, notebook: Notebook, world: World) -> None:
    notebook.run(f"{SUBMIT}{ENDLESS}")
    assert ": its values come at its end" in notebook.run("%dl values 4 best")
    text = notebook.run("print('best is', best)", interrupt_when="waiting for #4")
    assert "stopped waiting for #4, which goes on; the cell has not run" in text
    assert "best is" not in text
    assert world.overview(4).experiment.state == "active"
    notebook.run("%dl stop 4")
    assert "experiment #4 is stopped, and its program has not come to its end" in notebook.run("print(best)")


def test_a_cell_below_dlrun_gives_back_what_it_binds(trained: str, notebook: Notebook) -> None:
    notebook.run("%%dlrun --no-wait\nscores = {'mean': data.mean().item()}\ntwice = lambda x: 2 * x\nscores['mean']")
    assert notebook.run("print(scores['mean'] == data.mean().item(), twice(4))").rstrip().endswith("True 8")


def test_a_definition_of_functions_gives_its_validations_as_a_table(trained: str, notebook: Notebook) -> None:
    notebook.run("del history")
    said = notebook.run(f"{SUBMIT.replace(' --no-rehearsal', '')} --epochs 2{FUNCTIONS}")
    assert "note: a cell that reads history waits for this job" in said
    assert (
        notebook.run("print(list(history.columns), list(history.epoch))")
        .rstrip()
        .endswith("['step', 'epoch', 'loss', 'error'] [1.0, 2.0]")
    )


def test_nothing_comes_back_where_it_is_switched_off(trained: str, notebook: Notebook) -> None:
    cell = "\nquiet = data.mean()\nfor step in range(1):\n    (1 - model(data)).sum().backward()"
    said = notebook.run(f"{SUBMIT} --no-values{cell}")
    assert "quiet and step are not set there: " in said
    assert "waits for this job" not in said
    assert "is not defined" in notebook.run("quiet")


def test_a_class_that_has_changed_is_named_with_its_difference(trained: str, notebook: Notebook) -> None:
    notebook.run("class Net(nn.Module):\n    def forward(self, x):\n        return x")
    text = notebook.run(
        "import daylight\nvalues = daylight.job(1).values()\nprint(type(values['model']) is Net, len(values))"
    )
    assert "Net has changed in the notebook since #1 was submitted: its values have the submitted one" in text
    assert "+        return x" in text
    assert text.rstrip().endswith("False 6")
    assert "#1 has set no histori (did you mean history?); its values are: " in notebook.run("values['histori']")
