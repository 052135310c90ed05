"""Test that the state check reports settings of the notebook's process that the job lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from jupyter_ext.capture import capture_cell
from jupyter_ext.submit.process import notebook_process
from kernel_backend.model.snapshot import Process
from kernel_backend.runner.definition.load import executed
from kernel_backend.runner.definition.process_check import Difference, ProcessCheck
from kernel_backend.snapshots.process import SETTINGS, cell_of
from tests.notebooks.kernel import apart, execute, shell

HELPERS = """
import os, sys
def double():
    import torch; torch.set_default_dtype(torch.float64)
def single():
    import torch; torch.set_default_dtype(torch.float32)
def raising():
    import numpy; numpy.seterr(all="raise")
def patch():
    import torch.nn.functional as F
    F.relu = twice
def twice(x, inplace=False): return x * 2
def slow():
    os.environ["STUDY_MODE"] = "slow"
def deep():
    sys.setrecursionlimit(7777)
"""
USES_TORCH = "import torch\ndef model(): return torch.nn.Linear(1, 1)"


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """Import modules once, which each forked process would otherwise import again."""
    import numpy
    import torch  # noqa: F401

    shell()
    assert numpy.geterr()["over"] == "warn"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a project with a module that changes settings."""
    (tmp_path / "helpers_of_the_project.py").write_text(HELPERS)
    (tmp_path / "double.py").write_text("import torch\ntorch.set_default_dtype(torch.float64)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def found(folder: Path, cells: Sequence[str], target: str = USES_TORCH) -> list[Difference]:
    """Capture a cell after these cells; return the settings of the process that differ in the job."""

    def in_kernel() -> tuple[str, int, Process]:
        kernel = shell()
        recorder = execute(kernel, cells)
        capture = capture_cell(recorder.cells, target, kernel.user_ns)
        assert capture.problems == ()
        return capture.source, capture.roles_from, notebook_process(capture, {})

    def in_job() -> list[Difference]:
        check = ProcessCheck(told, cell_of(source, line))
        executed(folder / "definition.py", source, line, check.cell_begins)
        return check.differences()

    source, line, told = apart(in_kernel)
    return apart(in_job)


def texts(differences: list[Difference]) -> list[str]:
    return [each.text for each in differences]


@pytest.mark.parametrize(
    "cell",
    [
        "import helpers_of_the_project as h\nh.double()",
        "%run double.py",
        "import double",
        "import torch\ngetattr(torch, 'set_default' + '_dtype')(torch.float64)",
        "text = 'torch.float'\nexec(f'import torch; torch.set_default_dtype({text}64)')",
    ],
)
def test_a_default_type_that_a_job_would_lose_is_told_with_the_line_that_sets_it(folder: Path, cell: str):
    (difference,) = found(folder, [cell])
    assert difference.refuses
    assert difference.text == (
        "torch's default dtype differs: notebook torch.float64, job torch.float32. "
        "Add the line: torch.set_default_dtype(torch.float64)"
    )


def test_a_setting_that_is_taken_back_unseen_is_told_too(folder: Path):
    cells = ["import torch\ntorch.set_default_dtype(torch.float64)", "import helpers_of_the_project as h\nh.single()"]
    (text,) = texts(found(folder, cells))
    assert text.startswith("torch's default dtype differs: notebook torch.float32, job torch.float64. ")


def test_a_cell_that_sets_it_itself_is_left_alone(folder: Path):
    hidden = "import helpers_of_the_project as h\nh.double()"
    assert found(folder, [hidden], f"import torch\ntorch.set_default_dtype(torch.float32)\n{USES_TORCH}") == []
    assert found(folder, [hidden], f"import double\n{USES_TORCH}") == []
    assert found(folder, [], f"import double\n{USES_TORCH}") == []
    reads = f"import torch\nkind = torch.get_default_dtype()\n{USES_TORCH}"
    assert texts(found(folder, [hidden], reads)) != []
    assert found(folder, ["%run double.py", "import torch\ntorch.set_default_dtype(torch.float64)"]) == []


def test_what_a_library_is_set_to_matters_to_those_who_use_it(folder: Path):
    hidden = "import helpers_of_the_project as h\nh.raising()"
    assert found(folder, [hidden]) == []
    (text,) = texts(found(folder, [hidden], f"import numpy as np\nx = np.zeros(1)\n{USES_TORCH}"))
    assert text.endswith("notebook all='raise', job all='warn'. Add the line: np.seterr(all='raise')")


def test_a_cell_that_only_reads_or_sets_it_again_is_no_false_alarm(folder: Path):
    seen = "import torch\ntorch.set_float32_matmul_precision('medium')"
    again = f"import torch\ntorch.set_float32_matmul_precision('medium')\n{USES_TORCH}"
    assert found(folder, [seen], again) == []
    assert found(folder, [seen], f"import torch\nkind = torch.backends.cuda.matmul.allow_tf32\n{USES_TORCH}") == []


def test_a_function_of_a_library_that_is_replaced_unseen_is_named(folder: Path):
    (text,) = texts(found(folder, ["import helpers_of_the_project as h\nh.patch()"]))
    assert text == (
        "torch.nn.functional.relu differs: notebook helpers_of_the_project.twice, job the library's own. "
        "Add the line: torch.nn.functional.relu = helpers_of_the_project.twice"
    )
    seen = "import torch.nn.functional as F\ndef twice(x, inplace=False): return x * 2\nF.relu = twice"
    assert found(folder, [seen]) == []


def test_a_variable_of_the_environment_counts_where_the_code_names_it(folder: Path):
    hidden = "import helpers_of_the_project as h\nh.slow()"
    assert found(folder, [hidden]) == []
    (text,) = texts(found(folder, [hidden], f"import os\nmode = os.environ.get('STUDY_MODE')\n{USES_TORCH}"))
    assert text.startswith("os.environ['STUDY_MODE'] differs: notebook 'slow', job not set. ")
    assert text.endswith("Add the line: os.environ['STUDY_MODE'] = 'slow'")


def test_a_variable_that_a_magic_makes_of_a_value_is_that_value_in_the_job(folder: Path):
    target = f"import os\nmode = os.environ['STUDY_MODE']\n{USES_TORCH}"
    for magic in ("%env STUDY_MODE={word}", "%env STUDY_MODE=$word", "%set_env STUDY_MODE {word}"):
        assert found(folder, ["word = 'slow'", magic], target) == []


def test_a_secret_of_the_environment_stays_behind(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAYMENT_API_KEY", "Zk3vQ9xT7bLw2RfN")
    capture = capture_cell([], f"import os\nkey = os.environ['PAYMENT_API_KEY']\n{USES_TORCH}")
    assert notebook_process(capture, {}).variables == {}


def test_a_recursion_limit_is_told_and_refuses_nothing(folder: Path):
    (difference,) = found(folder, ["import helpers_of_the_project as h\nh.deep()"])
    assert not difference.refuses
    assert "notebook 7777, job 1000. Add the line: sys.setrecursionlimit(7777)" in difference.text
    assert found(folder, ["import sys\nsys.setrecursionlimit(7777)"]) == []


OTHER = {
    "torch.float32": "torch.float64",
    "'cpu'": "'meta'",
    "True": "False",
    "False": "True",
    "'highest'": "'high'",
    "'none'": "'tf32'",
    "'tf32'": "'ieee'",
    "all='warn'": "over='raise'",
    "28": "5",
    "'ROUND_HALF_EVEN'": "'ROUND_DOWN'",
    "'C'": "'C.UTF-8'",
    "1000": "7777",
    "": "UserWarning",
    "'default'": "'pandas'",
    "'warn'": "'raise'",
    "'auto'": "'python'",
}
_EACH = """
import json, locale, decimal, sys, warnings, numpy as np, torch
import IPython.core.completer
try:
    import pandas as pd, sklearn
except ImportError:
    pass
from kernel_backend.snapshots.process import SETTINGS, process
began = process().settings
answers = {}
for name, value in json.loads(sys.argv[1]).items():
    if name in began:
        exec(SETTINGS[name].line(value))
        answers[name] = process().settings[name]
        exec(SETTINGS[name].line(began[name]) if began[name] else "warnings.resetwarnings()")
print(json.dumps([began, answers]))
"""


def test_every_setting_begins_as_the_table_says_and_its_line_sets_it():
    """The test runs in a process like a kernel's, in which only IPython has changed settings."""
    wanted = {name: OTHER[setting.begins] for name, setting in SETTINGS.items()}
    command = [sys.executable, "-W", "ignore", "-c", _EACH, json.dumps(wanted)]
    began, answers = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert began == {name: SETTINGS[name].begins for name in began}
    assert answers == {name: wanted[name] for name in answers}
    assert {setting.library for setting in SETTINGS.values()} >= {SETTINGS[name].library for name in answers}
    assert {"torch's default dtype", "numpy's floating-point errors", "decimal's precision"} <= answers.keys()


def test_what_comes_of_earlier_cells_has_run_and_nothing_of_the_submitted_one(tmp_path: Path):
    source = '"""Told."""\nfrom __future__ import annotations\nran = [1]\nx: Later = 1\nran.append(2)\ny: Later = 2\n'
    seen: list[int] = []
    module = executed(tmp_path / "definition.py", source, 5, lambda: seen.extend(sys.modules["definition"].ran))
    assert seen == [1]
    assert module.ran == [1, 2]
    assert module.__doc__ == "Told."
    assert module.__annotations__ == {"x": "Later", "y": "Later"}
    assert [name for name in vars(module) if "daylight" in name] == []
