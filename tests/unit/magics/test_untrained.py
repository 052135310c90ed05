"""Test the note on values that a job trains or fills while those of the notebook stay as they are."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.capture import capture_cell
from jupyter_ext.magics.notebook_part import notebook_part
from jupyter_ext.magics.untrained import LeftBehind, untrained_note
from jupyter_ext.values.expected import left_to_job
from kernel_backend.definition.parse import parse
from kernel_backend.model.syntax import module_tree
from tests.notebooks.kernel import execute, shell

SETUP = """import torch
def net(): return torch.nn.Linear(1, 1)
data = [torch.ones(1)] * 2
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = "    for x in data:\n        optimizer.zero_grad()\n        loss = model(x)\n        loss.backward()\n"
LOOP = f"for epoch in range(2):\n{STEP}        optimizer.step()\n"


@pytest.fixture(scope="module", autouse=True)
def torch_is_imported() -> None:
    pytest.importorskip("torch")


def submitted(*cells: str) -> tuple[str | None, InteractiveShell]:
    """Run cells in a kernel, the last one like a submitted one, and return the note and the kernel."""
    *above, cell = cells
    kernel = shell()
    recorder = execute(kernel, above)
    capture = capture_cell(recorder.cells, cell, kernel.user_ns, line=2)
    definition, running = parse(capture.source, capture.roles_from), f"%%dlsubmit\n{cell}"
    part = notebook_part(cell, running, definition, module_tree(capture.source), str)
    kernel.run_cell(part.code)
    names = left_to_job(definition, capture, kernel.user_ns)
    return untrained_note(names, definition, kernel.user_ns), kernel


def note(*cells: str) -> str | None:
    return submitted(*cells)[0]


def test_the_call_is_one_that_the_notebook_can_run() -> None:
    loop = parse(f"{SETUP}{LOOP}", 6)
    said = "model is not set in the notebook: daylight.job(7).load() gives the trained model"
    assert untrained_note(["model"], loop, {"daylight": None}, "daylight.job(7)") == said
    assert untrained_note(["model"], loop, {}, "daylight.job(7)") == f"{said} after import daylight"
    mine = "model is not set in the notebook: mine.load() gives the trained model"
    assert untrained_note(["model"], loop, {}, "mine") == mine
    assert untrained_note([], loop, {}) is None


def test_a_model_of_an_earlier_cell_is_named_with_the_call_that_loads_it() -> None:
    stays = "the notebook's model and optimizer stay as they were, and "
    loads = 'job.load("model") gives the trained model'
    assert note(SETUP, LOOP) == f"{stays}epoch, x and loss are not set there: {loads}"
    train = f"def train(net, steps):\n{STEP}        optimizer.step()\n".replace("model(x)", "net(x)")
    loop = "for epoch in range(2):\n    train(model, 3)\n"
    assert note(SETUP, train, loop) == f"{stays}epoch is not set there: {loads}"


def test_first_values_of_what_the_loop_changes_are_not_set_in_the_notebook() -> None:
    first = "best, at, history = 9.0, -1, {'loss': []}\nlowest = float('inf')\nlr = 0.5\n"
    counts = "    history['loss'].append(1)\n    if best > loss:\n        best, at = loss, epoch\n"
    counts += "    lowest = min(lowest, 1)\n"
    said, kernel = submitted(SETUP, first + LOOP + counts)
    assert said == (
        "the notebook's model and optimizer stay as they were, and at, best, history, lowest, epoch, x and 1 more are "
        'not set there: job.load("model") gives the trained model'
    )
    assert kernel.user_ns["lr"] == 0.5
    assert not {"best", "at", "history", "lowest"} & kernel.user_ns.keys()


def test_a_first_value_leaves_an_older_one_of_the_notebook_and_says_so() -> None:
    said, kernel = submitted(SETUP + "best = 3\n", f"best = 9\n{LOOP}    best = min(best, loss)\n")
    assert said is not None
    assert said.startswith("the notebook's best, model and optimizer stay as they were, ")
    assert kernel.user_ns["best"] == 3


def test_lists_and_counts_of_earlier_cells_are_named_also_when_a_function_changes_them() -> None:
    function = "def note(x):\n    global count\n    count += 1\n    seen.append(x)\n"
    state = "losses, seen, count, steps = [], [], 0, 0\n"
    said = note(SETUP + state, function, LOOP + "    losses.append(1)\n    note(2)\n    steps += 1\n")
    assert said is not None
    assert said.startswith("the notebook's count, steps, losses, model, optimizer and seen stay as they were, ")


def test_several_models_are_loaded_by_their_names_each_once() -> None:
    others = "other = net()\nsame = model\nmore = torch.optim.SGD(other.parameters(), lr=0.1)\n"
    said = note(SETUP + others, LOOP + "    same(x), other(x).backward()\n")
    assert said is not None
    assert said.endswith(': job.load("model") and job.load("other") give the trained models')
    cell = SETUP.partition("data")[2].replace("model = net()", "model = net()\nm = model.to('cpu')")
    assert note(SETUP.partition("data")[0], f"data{cell}m.parameters()\n{LOOP}") == (
        "data, model, m, optimizer, epoch, x and 1 more are not set in the notebook: job.load() gives the trained model"
    )


def test_a_model_made_in_a_function_is_loaded_without_a_name() -> None:
    setup = SETUP.partition("model")[0]
    step = "            loss = model(x)\n            loss.backward()\n"
    body = (
        f"def main():\n    model = net()\n    for epoch in range(2):\n        for x in data:\n{step}    return model\n"
    )
    assert note(setup, f"{body}score = 0\nscore = main()\n") == (
        "score is not set in the notebook: job.load() gives the trained model"
    )


def test_what_the_job_alone_sets_is_named() -> None:
    said = note(SETUP, f"steps = len(data)\nif steps:\n    score = steps\n{LOOP}")
    assert said is not None
    assert "and steps, score, epoch, x and loss are not set there: " in said
    said = note(SETUP + "history = []\n", f"history = sorted(data)\n{LOOP}")
    assert said is not None
    assert said.startswith("the notebook's history, model and optimizer stay as they were, ")


def test_arrays_and_tables_are_named_in_which_the_loop_sets_items() -> None:
    pytest.importorskip("pandas")
    values = "import numpy as np, pandas as pd\noof, table, kept = np.zeros(3), pd.DataFrame(), np.ones(2)\n"
    said = note(SETUP + values, f"{LOOP}    oof[epoch] = kept[epoch]\n    table.loc[epoch, 'loss'] = 1.0\n")
    assert said is not None
    assert said.startswith("the notebook's model, oof, optimizer and table stay as they were, ")


def test_a_tensor_that_is_trained_is_named_without_a_call_that_loads_it() -> None:
    cell = "for x in data:\n    (w * x).sum().backward()\n"
    assert note(SETUP + "w = torch.ones(1, requires_grad=True)\n", cell) == (
        "the notebook's w stays as it was, and x is not set there"
    )


LIGHTNING = """class LightningModule: ...
class Lit(LightningModule):
    def training_step(self, batch, index): ...
    def configure_optimizers(self): ...
    def train_dataloader(self): ...
class Trainer:
    def fit(self, model): raise AssertionError("the notebook trains")
"""


def test_a_fit_at_the_end_of_a_cell_names_model_and_trainer() -> None:
    assert note(LIGHTNING, "class More(Lit): ...\nmodel = More()\ntrainer = Trainer()\ntrainer.fit(model)\n") == (
        "the notebook's model stays as it was, and trainer is not set there: job.load() gives the trained model"
    )


def test_callbacks_of_a_trainer_are_named_as_they_record_the_training_in_the_job() -> None:
    cell = "class More(Lit): ...\nbest = dict()\nmodel = More()\n"
    cell += "trainer = Trainer(callbacks=[best, dict()])\ntrainer.fit(model)\n"
    setup = LIGHTNING.replace("class Trainer:", "class Trainer:\n    def __init__(self, callbacks): ...")
    assert note(setup, cell) == (
        "the notebook's model and best stay as they were, and trainer is not set there: "
        "job.load() gives the trained model"
    )


def test_a_definition_of_functions_has_no_value_in_the_notebook_unless_its_model_is_one() -> None:
    parts = "def train_data(): ...\ndef loss(output, target): ...\n"
    assert note(SETUP, f"def model(): ...\n{parts}") is None
    said = "the notebook's model stays as it was: job.load() gives the trained model"
    assert note(SETUP, f"model = net()\n{parts}") == said


def test_a_model_that_an_experiment_has_trained_is_named_where_the_next_one_begins_without_it() -> None:
    import torch

    held = {"model": torch.nn.Linear(1, 1), "losses": []}
    left = LeftBehind()
    assert list(left.within(["model"], held)) == []
    loop = parse(f"{SETUP}{LOOP}", 6)
    left.add(held, loop, held, number=3)
    assert list(left.within([*held, "other"], held)) == [
        "model begins without what #3 trains: to go on from there, run "
        'model = daylight.job(3).load("model") in a cell before this one'
    ]
    held["model"].load_state_dict(torch.nn.Linear(1, 1).state_dict())  # of a file that the job has written
    assert list(left.within(held, held)) == []
    functions = parse("def model(): ...\ndef train_data(): ...\ndef loss(output, target): ...\n")
    left.add(held, functions, held, number=4)
    (said,) = left.within(held, held)
    assert "run model = daylight.job(4).load() in" in said
    held["model"] = torch.nn.Linear(1, 1)
    assert list(left.within(held, held)) == []
