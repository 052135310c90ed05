"""Test a user's project in a real kernel: local modules, captured values, differences, and repeated submissions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.notebook.cells import error, printed
from tests.support.world import World

pytestmark = pytest.mark.notebook

HELPERS = """
import torch

class Rows(torch.utils.data.Dataset):
    def __init__(self, table, scale):
        self.table, self.scale = table, scale
    def __len__(self):
        return len(self.table)
    def __getitem__(self, index):
        return torch.tensor([self.table[index]]), torch.tensor([self.scale])
"""
ROLES = """
def train_data(): return Rows(table, cfg["scale"])
def validation_data(): return Rows(table, cfg["scale"])
def model(): return torch.nn.Linear(1, 1)
def loss(output, target): return (output - target).square().mean()
def metrics(output, target):
    return {"scale": target.flatten(), "words": torch.ones(len(target)) * len(open("words.txt").read())}
"""
SUBMIT = "%%dlsubmit --batch-size 4 --epochs 2 --backend torch --no-wait"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "src" / "nets").mkdir(parents=True)
    (root / "books").mkdir()
    (root / "pyproject.toml").write_text("")
    (root / ".gitignore").write_text("*.txt\n")
    (root / "src" / "nets" / "__init__.py").write_text("from .rows import Rows")
    (root / "src" / "nets" / "rows.py").write_text(HELPERS)
    (root / "books" / "words.txt").write_text("seven..")
    return root


@pytest.fixture(scope="module")
def cells(world: World, project: Path) -> list[Any]:
    sources = [
        "%load_ext daylight",
        "import sys\nsys.path.insert(0, '../src')",
        "import torch\nfrom nets import Rows",
        "lines = !seq 8",
        "table = [float(line) for line in lines]\ncfg = {'scale': 2.0}",
        f"{SUBMIT} --capture table --include words.txt --dry-run{ROLES}",
        f"{SUBMIT} --wait --capture table --include words.txt{ROLES}",
        "import sys\nsetattr(sys.modules['__main__'], 'cfg', {'scale': 3.0})",
        f"{SUBMIT} --wait --capture table --include words.txt{ROLES}",
        f"{SUBMIT} --wait --capture table --include words.txt --no-state-check{ROLES}",
        f"{SUBMIT} --epochs 500000 --capture table --include words.txt --no-state-check{ROLES}",
        f"# a comment\n{SUBMIT} --epochs 500000 --capture table --include words.txt --no-state-check{ROLES}".split(
            "\n", 1
        )[1],
        "%dl stop 4",
        "net = __import__('daylight').job(1).load()\nprint(type(net).__name__)",
        "%dl env 1",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(project / "books")}}
    patience = {"timeout": 200, "startup_timeout": 120, "iopub_timeout": 60}
    client = NotebookClient(notebook, kernel_name="python3", allow_errors=True, resources=resources, **patience)
    client.execute(env={**os.environ, **world.environment})
    return list(notebook.cells)


def test_a_dry_run_lists_what_would_travel(cells: list[Any]) -> None:
    text = printed(cells[5])
    assert error(cells[5]) is None, text
    assert "# 3 files of the project" in text
    for name in ("src/nets/__init__.py", "src/nets/rows.py", "books/words.txt"):
        assert f"#   {name} (" in text
    assert "# captured: table (" in text
    assert "# compared before the first step: cfg" in text
    assert "--include words.txt --capture table" in text
    assert 'table = captured("table")  # list, ' in text
    assert "!seq" not in text


def test_the_job_has_the_shipped_modules_the_captured_values_and_the_files(cells: list[Any], world: World) -> None:
    assert error(cells[6]) is None, printed(cells[6])
    overview = world.overview(1)
    assert overview.trials[0].metrics["scale"] == 2
    assert overview.trials[0].metrics["words"] == 7
    assert "Linear" in printed(cells[13])


def test_a_cell_says_what_it_ran_with(cells: list[Any]) -> None:
    assert error(cells[14]) is None
    assert printed(cells[14]).startswith("environment ")
    assert "torch 2." in printed(cells[14])


def test_a_value_that_no_cell_makes_is_found_before_the_first_step(cells: list[Any]) -> None:
    text = error(cells[8]).evalue
    assert "cfg differs: notebook {'scale': 3.0}, job {'scale': 2.0} (cell [5])" in text
    assert "--no-state-check" in text
    assert error(cells[9]) is None, printed(cells[9])


def test_the_same_cell_again_is_shown_and_not_made_twice(cells: list[Any]) -> None:
    assert "this cell is experiment #4, which is" in printed(cells[11])
