"""Test that a submitted cell draws the notebook's random numbers at its top level, however it was seeded."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from jupyter_ext.capture import Capture, capture_cell
from jupyter_ext.submit.process import notebook_process
from kernel_backend.model.snapshot import Process
from kernel_backend.runner.definition.process_check import ProcessCheck
from kernel_backend.snapshots.process import cell_of
from tests.notebooks.kernel import apart, execute, load, shell

IMPORTS = "import random, numpy as np, torch"
ALL = "torch.manual_seed(0); np.random.seed(0); random.seed(0)"
DRAW = "x = torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()"
MODULES = {
    "seedhelp.py": f"{IMPORTS}\nfrom contextlib import contextmanager\ndef fix(s=0): {ALL}\n"
    "class Settings:\n    def __init__(self, s=0): fix(s)\n    def again(self): self.go()\n    def go(self): fix()\n"
    "@contextmanager\ndef around():\n    fix()\n    yield\n"
    "def noise(): return torch.rand(1), np.random.rand(), random.random()\n"
    "def perhaps(seed=None):\n    if seed is not None:\n        fix(seed)\n",
    "seedsonimport.py": "from seedhelp import fix\nfix()\n",
    "inner/__init__.py": "from .deep import prepare\n",
    "inner/deep.py": "def prepare():\n    from seedhelp import fix as f\n    f()\n",
    "seedscript.py": f"{IMPORTS}\n{ALL}\n",
}
SEEDED = {
    "a function": [f"def seed_all(): {ALL}", "seed_all()"],
    "functions in functions": [f"def a(): {ALL}\ndef b(): a()", "b()"],
    "a method": [f"class Seeds:\n    def set(self): {ALL}", "Seeds().set()"],
    "a constructor": [f"class Seeds:\n    def __init__(self): {ALL}", "Seeds()"],
    "a context manager": [
        f"class S:\n    def __enter__(self): {ALL}\n    def __exit__(self, *a): pass",
        "with S(): pass",
    ],
    "a generator as a context manager": [
        f"import contextlib\n@contextlib.contextmanager\ndef seeded():\n    {ALL}\n    yield",
        "with seeded(): pass",
    ],
    "a decorator": [f"def seeded(f):\n    {ALL}\n    return f", "@seeded\ndef nothing(): pass"],
    "a decorated function": [
        f"def seeded(f):\n    def g():\n        {ALL}\n        return f()\n    return g",
        "@seeded\ndef nothing(): pass",
        "nothing()",
    ],
    "other names": ["a, b, c = torch.manual_seed, np.random.seed, random.seed", "a(0); b(0); c(0)"],
    "a loop over functions": ["for f in (torch.manual_seed, np.random.seed, random.seed): f(0)"],
    "functions in a dict": [
        "D = {1: torch.manual_seed, 2: np.random.seed, 3: random.seed}",
        "for f in D.values(): f(0)",
    ],
    "getattr": ["getattr(torch, 'manual_seed')(0); getattr(np.random, 'seed')(0); getattr(random, 'seed')(0)"],
    "partial": [
        "from functools import partial\nF = [partial(torch.manual_seed, 0), partial(np.random.seed, 0), "
        "partial(random.seed, 0)]",
        "for f in F: f()",
    ],
    "a module's function": ["import seedhelp", "seedhelp.fix()"],
    "a function of a module": ["from seedhelp import fix", "fix()"],
    "a star": ["from seedhelp import *", "fix()"],
    "a module's class": ["from seedhelp import Settings", "Settings()"],
    "a method of a module's class": ["from seedhelp import Settings\ns = Settings(1)", "np.random.rand()", "s.again()"],
    "a module's context manager": ["import seedhelp", "with seedhelp.around(): pass"],
    "a module of a module": ["import inner", "inner.prepare()"],
    "an import": ["import seedsonimport"],
    "a seed that is perhaps not set": ["import seedhelp", "seedhelp.fix(3)", "seedhelp.perhaps()"],
    "draws of a module after it": [ALL, "import seedhelp\nseedhelp.noise()"],
    "draws of a loader after it": [ALL, "for b in torch.utils.data.DataLoader(range(3)): pass"],
    "draws through an enumerated loader": [
        f"{ALL}\nloader = torch.utils.data.DataLoader(range(3), shuffle=True)",
        "for i, b in enumerate(loader): pass",
    ],
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a project with modules that the notebook imports."""
    for name, source in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def in_notebook(cells: list[str], draw: str = DRAW) -> tuple[object, Capture, Process]:
    """Return the number that the notebook draws, and the capture and process record taken right before."""
    kernel = shell()
    recorder = execute(kernel, [IMPORTS, *cells])
    capture = capture_cell(recorder.cells, draw, kernel.user_ns)
    process = notebook_process(capture, {})
    kernel.run_cell(draw)
    return kernel.user_ns["x"], capture, process


def in_job(capture: Capture, process: Process) -> tuple[object, list[str]]:
    """Return the number that the job draws, and its notes."""
    torch.manual_seed(7), np.random.seed(7), random.seed(7)
    check = ProcessCheck(process, cell_of(capture.source, capture.roles_from))
    drawn = load(capture.source, capture.roles_from, check.cell_begins)["x"]
    return drawn, [each.text for each in check.differences()]


@pytest.mark.parametrize("cells", SEEDED.values(), ids=SEEDED)
def test_a_cell_draws_what_the_notebook_would_have_drawn(cells: list[str]):
    drawn, capture, process = apart(lambda: in_notebook(cells))
    assert (capture.problems, capture.warnings) == ((), ())
    assert sorted(process.random) == ["numpy", "random", "torch"]
    assert apart(lambda: in_job(capture, process)) == (drawn, []), capture.source


@pytest.mark.parametrize(
    "cells", [[], ["%run seedscript.py"], ["exec('torch.manual' + '_seed(0)')"]], ids=["none", "%run", "exec"]
)
def test_a_seed_that_is_not_seen_is_told_with_the_line_to_add(cells: list[str]):
    _, capture, process = apart(lambda: in_notebook(cells))
    told = [each for each in capture.warnings if "itself draws from" in each]
    lines = ("np.random.seed(0)", "random.seed(0)", "torch.manual_seed(0)")
    assert [each.partition("add the line ")[2].partition(" above")[0] for each in told] == list(lines)
    assert process.random == {}


@pytest.mark.parametrize("draw", [f"{ALL}\n{DRAW}", "x = 1\ndef loss(): return torch.rand(1)"])
def test_a_cell_that_seeds_itself_or_draws_in_functions_alone_is_told_nothing(draw: str):
    _, capture, process = apart(lambda: in_notebook([], draw))
    assert (capture.warnings, process.random) == ((), {})


def test_a_draw_that_is_not_seen_is_told_by_the_job_with_the_line_to_add():
    hidden = "exec('random.' + 'random()')"
    drawn, capture, process = apart(lambda: in_notebook([ALL, hidden]))
    job, told = apart(lambda: in_job(capture, process))
    assert job != drawn
    assert told == [
        "the state of random's random generator is not the notebook's where the submitted cell begins, so what the "
        "cell itself draws is not, either. To draw the same in both, add the line random.seed(0) above the draw"
    ]


def test_seeds_of_other_generators_seed_nothing_of_these(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorflow", torch)  # whatever it is: its name is looked at
    _, capture, _ = apart(
        lambda: in_notebook(["import tensorflow as tf", "tf.random.set_seed(0)", "torch.cuda.manual_seed(0)"])
    )
    assert len([each for each in capture.warnings if "itself draws from" in each]) == 3
