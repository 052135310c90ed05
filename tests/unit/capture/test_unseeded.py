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
        ("x = [random.random(), lambda: 1]", "pickle.dump(", "pickle.load("),
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


def test_a_job_draws_its_own_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch):
    capture = captured(monkeypatch, ["x = np.random.randn(4)"], draws_anew=True)
    assert capture.drawn == ()
    assert "x = np.random.randn(4)" in capture.source


def test_a_large_value_of_a_sets_order_is_left_to_the_comparison_in_the_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unseeded, "LIMIT", 10)
    capture = captured(monkeypatch, ["x = list(set(range(100)))"])
    assert (capture.problems, capture.drawn) == ((), ())
