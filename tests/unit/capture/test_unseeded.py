"""Test that a job gets the notebook's values drawn without a seed: they are sent, or the submission is refused."""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Sequence
from contextlib import redirect_stdout

import numpy as np
import pytest

from jupyter_ext.capture import Capture, capture_cell, unseeded
from kernel_backend.snapshots.captured import read

IMPORTS = "import random, time, numpy as np, torch\nfrom torch import nn"
USE = "def train_data(): return {}"


def captured(monkeypatch: pytest.MonkeyPatch, cells: Sequence[str], name: str = "x", **options: bool) -> Capture:
    """Execute the cells, and capture a cell that uses `name`."""
    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    with redirect_stdout(io.StringIO()):
        for cell in [IMPORTS, *cells]:
            exec(cell, vars(notebook))
    return capture_cell([IMPORTS, *cells], USE.format(name), vars(notebook), **options)


@pytest.mark.parametrize(
    "cells",
    [
        ["x = np.random.randn(4)"],
        ["x = random.random()"],
        ["x = torch.rand(3)"],
        ["x = torch.empty(3).normal_()"],
        ["rng = np.random.default_rng()", "x = rng.normal(size=3)"],
        ["x = np.random.default_rng(None)"],
        ["noise = np.random.randn(4)", "def twice(a): return a * 2", "x = twice(noise)"],
        ["def make(): return [random.random() for _ in range(2)]", "x = make()"],
        ["random.seed()", "x = random.random()"],
        ["x = int(time.time())"],
        ["from uuid import uuid4", "x = str(uuid4())"],
        ["from sklearn.model_selection import train_test_split", "x, other = train_test_split(list(range(9)))"],
        ["import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})", "x = df.sample(frac=1)"],
        ["words = 'a b c'.split()", "x = list(set(words))"],
        ["words = {'a', 'b'} | {'c'}", "x = {word: at for at, word in enumerate(words)}"],
        ["random.seed(0)", "x = np.random.rand()"],
        ["net = nn.Linear(1, 1)", "x = net(torch.ones(1)).detach()"],
        ["x = nn.Linear(1, 1)", "x(torch.ones(1)).sum().backward()\nx.weight.data -= x.weight.grad"],
        ["class D(torch.utils.data.Dataset):\n    def __init__(self): self.rows = torch.rand(4)", "x = D()"],
    ],
    ids=lambda cells: cells[-1],
)
def test_a_value_that_is_drawn_without_a_seed_travels_by_itself(monkeypatch: pytest.MonkeyPatch, cells: list[str]):
    capture = captured(monkeypatch, cells)
    assert capture.problems == ()
    assert capture.drawn == ("x",)
    assert "\nx = captured(" in f"\n{capture.source}"
    assert "with the notebook's x (" in capture.described
    assert "drawn without a seed" in capture.described


@pytest.mark.parametrize(
    "cells",
    [
        ["np.random.seed(0)", "x = np.random.randn(4)"],
        ["torch.manual_seed(0)", "x = torch.rand(3)"],
        ["rng = np.random.default_rng(0)", "x = rng.normal(size=3)"],
        ["x = torch.rand(3, generator=torch.Generator().manual_seed(0))"],
        ["data = torch.arange(9)", "x = torch.utils.data.random_split(data, [6, 3], torch.Generator().manual_seed(0))"],
        ["from sklearn.model_selection import train_test_split", "x, _ = train_test_split([1, 2, 3], random_state=0)"],
        ["np.random.seed(0)\nfrom sklearn.utils import shuffle", "x = shuffle([1, 2, 3])"],
        ["import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})", "x = df.sample(frac=1, random_state=0)"],
        [
            "def set_seed(s):\n    random.seed(s); np.random.seed(s); torch.manual_seed(s)",
            "set_seed(1)",
            "x = torch.rand(2)",
        ],
        ["words = 'a b c'.split()", "x = sorted(set(words))"],
        ["words = 'a b c'.split()", "x = sorted(list(set(words)))"],
        ["x = len({1, 2} | {3})"],
        ["x = nn.Linear(1, 1)"],
        ["began = time.time()", "x = [1]"],
        ["class D(torch.utils.data.Dataset):\n    def __init__(self): self.rows = torch.ones(4)", "x = D()"],
    ],
    ids=lambda cells: cells[-1],
)
def test_what_comes_out_the_same_again_travels_as_code(monkeypatch: pytest.MonkeyPatch, cells: list[str]):
    capture = captured(monkeypatch, cells)
    assert capture.problems == ()
    assert capture.drawn == ()


def test_what_is_made_of_it_is_made_in_the_job_where_it_travels_itself(monkeypatch: pytest.MonkeyPatch):
    capture = captured(monkeypatch, ["x = np.random.randn(4)", "y = x * 2"], "x + y")
    assert set(capture.drawn) == {"x", "y"}
    assert "y = x * 2" not in capture.source
    (data,) = (capture.files[each.file] for each in capture.captured if each.name == "x")
    assert np.array_equal(read("npy", data, {}), vars(sys.modules["__main__"])["x"])


@pytest.mark.parametrize(
    ("cell", "save", "load"),
    [
        ("x = np.random.randn(400)", 'np.save("x.npy", x)', 'x = np.load("x.npy")'),
        ("x = torch.rand(400)", 'torch.save(x, "x.pt")', 'x = torch.load("x.pt")'),
        ("x = [random.random() for _ in range(400)]", 'pickle.dump(x, open("x.pkl", "wb"))', "x = pickle.load("),
    ],
)
def test_what_is_too_large_or_of_no_kind_that_travels_is_refused_with_the_lines_to_keep_it(
    monkeypatch: pytest.MonkeyPatch, cell: str, save: str, load: str
):
    monkeypatch.setattr(unseeded, "LIMIT", 1000)
    (problem,) = captured(monkeypatch, ["a = 1", cell]).problems
    assert problem.message.startswith("'x' depends on what cell [3] line 1 draws without a seed, so that a job would")
    for text in (save, load, "--capture x", "Seed it there", "--no-state-check"):
        assert text in problem.message


def test_of_what_no_file_can_hold_the_advice_is_to_make_it_in_the_cell(monkeypatch: pytest.MonkeyPatch):
    (problem,) = captured(monkeypatch, ["a = 1", "x = [random.random(), lambda: 1]"]).problems
    assert "a list cannot be stored: PicklingError: " in problem.message
    assert problem.message.endswith(
        "Seed it there and run the cell again, or make it in this cell. With --no-state-check the job draws its own."
    )


def test_a_job_draws_its_own_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch):
    capture = captured(monkeypatch, ["x = np.random.randn(4)"], draws_anew=True)
    assert capture.drawn == ()
    assert "x = np.random.randn(4)" in capture.source


def test_a_large_value_of_a_sets_order_is_left_to_the_comparison_in_the_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unseeded, "LIMIT", 10)
    capture = captured(monkeypatch, ["x = list(set(range(100)))"])
    assert (capture.problems, capture.drawn) == ((), ())


LOADERS = "from torch.utils.data import DataLoader, Dataset, TensorDataset\nfrom torch.optim.lr_scheduler import StepLR"
SPLIT = "from sklearn.model_selection import train_test_split\na, b = train_test_split(list(range(10)))"
LOADER = "x = DataLoader(TensorDataset(torch.Tensor(a)[:, None]))"
OWN = "class Own(Dataset):\n    def __init__(self): self.rows = torch.rand(4, 1)\n"
OWN += "    def __len__(self): return 4\n    def __getitem__(self, at): return (self.rows[at],)"
MODEL = "net = nn.Linear(1, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\nsteps = StepLR(opt, 1)"
USES_X = """net = nn.Linear(1, 1)
for epoch in range(3):
    loss = net(torch.ones(1)) + {}
    loss.backward()
"""
OVER_X = """for epoch in range(3):
    for (batch,) in x:
        loss = net(batch).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    steps.step()
"""


def of_loop(monkeypatch: pytest.MonkeyPatch, cells: Sequence[str], loop: str) -> Capture:
    """Execute the cells, and capture a training loop that uses what they made."""
    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    cells = [IMPORTS, LOADERS, *cells]
    for cell in cells:
        exec(cell, vars(notebook))
    return capture_cell(cells, loop, vars(notebook))


@pytest.mark.parametrize(
    ("cells", "use", "expected"),
    [
        (["x = np.random.permutation(10)"], "x[0]", ("x",)),
        (["x = torch.rand(3)"], "x.sum()", ("x",)),
        (["x = np.arange(9)\nnp.random.shuffle(x)"], "x[0]", ("x",)),
        ([SPLIT, "x = torch.Tensor(a)"], "x.sum()", ("x",)),
        ([SPLIT, "x = {'train': a, 'test': b}"], "x['train'][0]", ("x",)),
    ],
)
def test_data_that_flows_into_a_loss_travels(
    monkeypatch: pytest.MonkeyPatch, cells: list[str], use: str, expected: tuple[str, ...]
):
    capture = of_loop(monkeypatch, cells, USES_X.format(use))
    assert capture.problems == ()
    assert capture.drawn == expected


@pytest.mark.parametrize(
    ("cells", "drawn", "made"),
    [
        ([SPLIT, LOADER], {"a"}, True),
        ([SPLIT, "rows = TensorDataset(torch.Tensor(a)[:, None])\nx = DataLoader(rows)"], {"a"}, True),
        (["order = np.arange(9)\nnp.random.shuffle(order)\na = order[:4]", LOADER], {"order"}, True),
        (["x = DataLoader(TensorDataset(torch.rand(9, 1)))"], {"x"}, False),
        ([OWN, "x = DataLoader(Own())"], {"x"}, False),
        ([OWN, "rows = Own()\nx = DataLoader(rows)"], {"rows"}, True),
        (
            ["a, b = torch.utils.data.random_split(TensorDataset(torch.ones(9, 1)), [6, 3])\nx = DataLoader(a)"],
            {"a"},
            True,
        ),
        ([SPLIT, LOADER, "a = []"], {"x"}, False),  # the notebook's `a` is no longer what the loader holds
        ([SPLIT, LOADER, "a.append(1.0)"], {"x"}, False),
    ],
)
def test_a_loader_is_made_of_the_data_that_travels_and_else_travels_itself(
    monkeypatch: pytest.MonkeyPatch, cells: list[str], drawn: set[str], made: bool
):
    capture = of_loop(monkeypatch, [*cells, MODEL], OVER_X)
    assert capture.problems == ()
    assert set(capture.drawn) == drawn
    assert ("x = DataLoader(" in capture.source) == made


@pytest.mark.parametrize(
    ("cells", "use"),
    [
        ([MODEL], "net(torch.ones(1)) + opt.param_groups[0]['lr'] + steps.last_epoch"),
        (["pair = [nn.Linear(1, 1), nn.Linear(1, 1)]"], "pair[0](torch.ones(1))"),
        (["weights = torch.rand(3, requires_grad=True)"], "weights.sum()"),
        (
            [MODEL, "class Run:\n    def __init__(self): self.net = nn.Linear(1, 1)\nrun = Run()"],
            "run.net(torch.ones(1))",
        ),
        (["import io, uuid\nclass Log(io.StringIO): pass\nlog = Log(str(uuid.uuid4()))"], "log.write('a')"),
        (["np.random.seed(0)", "x = np.random.permutation(10)"], "x[0]"),
        (["x = np.arange(10)"], "x[0]"),
    ],
)
def test_what_is_trained_and_what_is_no_data_is_made_by_the_job(
    monkeypatch: pytest.MonkeyPatch, cells: list[str], use: str
):
    capture = of_loop(monkeypatch, cells, f"for epoch in range(3):\n    loss = {use}\n    loss.backward()\n")
    assert capture.drawn == ()


def test_a_value_that_the_cell_makes_itself_does_not_travel(monkeypatch: pytest.MonkeyPatch):
    capture = of_loop(monkeypatch, ["x = np.random.permutation(10)"], f"x = [1]\n{USES_X.format('x[0]')}")
    assert capture.drawn == ()


def test_data_for_a_loop_that_is_too_large_is_drawn_by_the_job_with_a_note(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unseeded, "LIMIT", 1000)
    capture = of_loop(monkeypatch, ["x = np.random.randn(400)"], USES_X.format("x[0]"))
    assert (capture.problems, capture.drawn) == ((), ())
    (note,) = [each for each in capture.warnings if "without a seed" in each]
    assert note.startswith("'x' depends on what cell [3] line 1 draws without a seed, and the job draws its own: ")
    assert note.endswith("Seed it there to have the notebook's in the job")


def test_a_value_that_travels_by_itself_is_no_option_that_nothing_uses(monkeypatch: pytest.MonkeyPatch):
    cells = ["words = 'a b c'.split()", "x = list(set(words))", "y = {word: 1 for word in x}", "z = lambda: y"]
    assert not any("--capture" in each for each in captured(monkeypatch, cells, "x").warnings)


BUILD = """def build():
    net = nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    return net, opt, StepLR(opt, 1)
net, opt, steps = build()"""
HANDED_OVER = (
    "def model(): return net\ndef optimizer(): return opt\ndef schedule(): return steps\ndef more(): return {}"
)


@pytest.mark.parametrize(
    ("cell", "more"),
    [
        ("more = torch.optim.swa_utils.AveragedModel(net)", "more.module"),
        ("class Run:\n    def __init__(self): self.opt = opt\nmore = Run()", "more.opt.param_groups[0]"),
        ("more = [net, opt]", "more[0]"),
        ("more = {key: value.clone() for key, value in net.state_dict().items()}", "more['weight']"),
    ],
)
@pytest.mark.parametrize("build", [MODEL, BUILD])
def test_what_belongs_to_a_module_is_made_with_it(monkeypatch: pytest.MonkeyPatch, build: str, cell: str, more: str):
    capture = of_loop(monkeypatch, [build, cell], HANDED_OVER.format(more))
    assert (capture.problems, capture.drawn) == ((), ())
    job = types.ModuleType("definition")
    exec(capture.source, vars(job))
    assert job.schedule().optimizer is job.optimizer()
    assert next(iter(job.model().parameters())) is job.optimizer().param_groups[0]["params"][0]


def test_what_a_module_that_stays_behind_has_computed_is_sent(monkeypatch: pytest.MonkeyPatch):
    capture = of_loop(monkeypatch, ["net = nn.Linear(1, 1)", "x = net(torch.ones(1)).detach()"], USE.format("x"))
    assert capture.drawn == ("x",)
