"""Test that code which a job cannot run is refused before submission, with the cell and a hint."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_ext.capture import Capture, Cell, capture_cell
from tests.notebooks.kernel import shell


def message(capture: Capture) -> str:
    (problem,) = capture.problems
    return problem.message


@pytest.mark.parametrize(
    "text",
    [
        "x = await get()",
        "async with get() as x:\n    pass",
        "x = []\nasync for each in get():\n    x.append(each)",
        "x = [each async for each in get()]",
    ],
)
def test_waiting_at_the_top_level_of_a_cell_is_refused_by_its_place(text: str):
    line = next(number for number, each in enumerate(text.split("\n"), start=1) if "async" in each or "await" in each)
    said = message(capture_cell(["async def get(): ...", text], "def model(): return x"))
    assert said.startswith(f"cell [2] line {line} cannot stand in a module")
    assert "call that with asyncio.run(...), or add --capture " in said
    assert capture_cell(["def get(): ...", text], "def model(): return x", {"x": 3}, captured=["x"]).problems == ()
    assert capture_cell(["async def get(): ...", text], "def model(): return 1").problems == ()


def test_every_such_statement_is_told_and_the_submitted_cell_by_its_own_line():
    told = [each.message for each in capture_cell(["x = await f()", "y = await f(x)"], "z = await y", line=3).problems]
    places = ("cell [1] line 1 ", "cell [2] line 1 ", "cell [3] line 3 ")
    assert all(any(each.startswith(place) for each in told) for place in places)
    assert not any("--capture" in each for each in told if each.startswith("cell [3] line 3"))


def test_cells_that_are_no_module_together_are_refused():
    said = message(capture_cell(["x = 1"], "global x\nx = x + 1"))
    assert said.startswith("cell [2] line 1 cannot stand in a module")
    assert "before global declaration" in said


def test_display_is_harmless_in_a_job_and_other_things_of_notebooks_are_refused_in_a_kernel_too():
    shell()  # puts them among the builtins
    capture = capture_cell(["def helper(): display({'a': 1})\ndef asks(): get_ipython()"], "helper()")
    assert capture.problems == ()
    job = subprocess.run([sys.executable, "-c", capture.source], capture_output=True, text=True, check=True)
    assert job.stdout == "{'a': 1}\n"
    kernel = [sys.executable, "-c", _IN_A_KERNEL]
    assert "'get_ipython'" in subprocess.run(kernel, capture_output=True, text=True, check=True).stdout


_IN_A_KERNEL = """
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance()
from jupyter_ext.capture import capture_cell
history = ["def asks(): get_ipython()\\ndef helper(): display(1)"]
(problem,) = capture_cell(history, "def model(): asks(), helper()").problems
print(problem.message)
"""


@pytest.mark.parametrize(
    "target", ["def train_data(): return labels", "print(labels)", "def model(): return helper()", "x = Labelled"]
)
def test_what_was_deleted_since_is_refused_with_the_cell_that_did_it(target: str):
    history = [
        "labels = [1]\nother = labels",
        "def helper(): return labels\nclass Labelled:\n    def get(self): return labels",
        Cell("del labels", number=87),
    ]
    said = message(capture_cell(history, target))
    assert said == ("'labels' was deleted in cell [87]. Run the cell that makes it again, or make it in this cell.")
    assert capture_cell(history, f"labels = 3\n{target}").problems == ()
    assert capture_cell([*history, "labels = 4"], target).problems == ()
    assert capture_cell(history, "def model(): return other").problems == ()


def test_what_a_function_read_before_it_was_deleted_stops_nothing():
    history = ["tmp = 3\ndef f(): return tmp\nx = f()\ndel tmp"]
    capture = capture_cell(history, "def model(): return x")
    assert capture.problems == ()
    exec(capture.source, {})


@pytest.mark.parametrize(
    ("text", "held"),
    [("%run extra.py", 3), ("%store -r listing", [1]), ("%%bash --out listing\nls", "a\n"), ("%%sql listing <<\n", 1)],
)
def test_values_that_a_magic_may_have_made_are_not_written_in(text: str, held: object):
    said = message(capture_cell([text], "def model(): return listing", {"listing": held}))
    assert f"'{text.split(chr(10))[0].strip()}' in cell [1]" in said
    assert "Write it in Python, or add --capture listing." in said


@pytest.mark.parametrize(
    "text", ["%%bash --out another\nls", "%%html\n<b>", "%matplotlib inline", "%cd listing", "!ls"]
)
def test_values_that_no_magic_can_have_made_are(text: str):
    capture = capture_cell([text], "def model(): return listing", {"listing": 3})
    assert capture.problems == ()
    assert "listing = 3\n" in capture.source


def test_modules_that_a_magic_brought_are_imported():
    assert "import json as js\n" in capture_cell(["%pylab"], "def model(): js", {"js": __import__("json")}).source


def test_a_local_name_cannot_be_captured_and_that_is_not_offered():
    said = message(capture_cell(["def f():\n    out = !ls data\n    return out"], "def train_data(): return f()"))
    assert said.endswith("in cell [1], which a job cannot repeat. Write it in Python.")


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("!wget https://example.org/files/train.csv", "pd.read_csv('train.csv')"),
        ("!unzip -q archive.zip -d pictures", "listed('pictures/cats')"),
        ("!curl -o words.txt https://example.org/w", "open('words.txt').read()"),
        ("%%bash\ngit clone https://example.org/x data-of-x", "listed('data-of-x')"),
        ("%%writefile conf.yaml\na: 1", "open('conf.yaml').read()"),
    ],
)
def test_a_command_that_made_what_a_needed_statement_reads_is_told(command: str, reads: str):
    told = capture_cell([command, f"x = {reads}"], "def model(): return x", {"pd": 1, "listed": 1}).warnings
    assert any(each.startswith("cell [1] line 1 (") and "does not run in a job" in each for each in told)
    assert any("does not run" in each for each in capture_cell([command], f"def model(): return {reads}").warnings)
    others = capture_cell([command, f"x = {reads}"], "def model(): return 1").warnings
    assert not any("does not run" in each for each in others)


@pytest.mark.parametrize("command", ["!ls pictures", "!pip install pictures", "!nvidia-smi", "%cd pictures"])
def test_a_command_that_only_looks_is_not(command: str):
    told = capture_cell([command], "def model(): return open('pictures/a')").warnings
    assert not any("does not run" in each for each in told)


@pytest.mark.parametrize("move", ["%cd sub", "import os\nos.chdir('sub')", "%pushd sub"])
def test_a_move_to_another_folder_is_told_where_a_needed_file_was_read_before_it(move: str):
    capture = capture_cell([f"x = open('a.txt').read()\n{move}", "y = 1"], "import os\ndef model(): return x, y")
    assert any("cell [1] ran before " in each and "in cell [1]" in each for each in capture.warnings)
    assert "chdir(" not in capture.source
    assert not any("ran before" in each for each in capture_cell([move, "x = open('a')"], "x").warnings)


@pytest.mark.parametrize("command", ["!echo hi", "!ls", "files = !ls", "%env A=1"])
@pytest.mark.parametrize("block", ["def model():", "for _ in range(2):", "class A:"])
def test_a_command_in_a_block_that_a_job_runs_is_told(block: str, command: str):
    text = f"x = 1\n{block}\n    {command}\n    y = 2"
    told = f"line 3 ({command}) does not run in a job: write it as Python, such as subprocess.run(...)"
    whole = capture_cell([], text)
    assert [each for each in whole.warnings if told in each]
    assert not [each for each in capture_cell([text], "z = 3").warnings if "does not run" in each]


def test_a_cell_that_is_no_python_is_refused_by_its_line():
    said = message(capture_cell(["x = 1"], "def model():\n    return (x", number=7, line=2))
    assert said.startswith("cell [7] line 3: '(' was never closed")
    for fine in ("", "# nothing\n", "!ls", "x = 1"):
        assert capture_cell([], fine).problems == ()


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        (["x = input('lr? ')"], "cell [1] line 1, which is needed, asks with input()"),
        (["def ask(): return float(input())", "x = ask()"], "cell [2] line 1, which is needed, asks with input()"),
    ],
)
def test_an_answer_of_the_user_is_refused_before_a_job_asks_for_it(cells: list[str], place: str):
    said = message(capture_cell(cells, "def model(): return x"))
    assert said == f"{place}, and a job has nobody. Write the answer down, or add --capture x."
    assert capture_cell(cells, "def model(): return x", {"x": 1}, captured=["x"]).problems == ()
    assert capture_cell(cells, "def model(): return 1").problems == ()
    assert capture_cell(["def input(text=''): return 3", *cells], "def model(): return x").problems == ()
    assert message(capture_cell([], "x = input()")).startswith("this cell asks with input()")


def test_annotations_from_before_a_future_import_and_after_it_are_told():
    history = ["def f(x: int): return x", "from __future__ import annotations\ndef g(x: int): return x"]
    (told,) = capture_cell(history, "def model(): return f, g").warnings
    assert told.startswith("cell [1] ran before 'from __future__ import annotations' in cell [2]")
    only_before = capture_cell(history, "def model(): return f")
    assert "from __future__" not in only_before.source
    assert only_before.warnings == ()
    only_after = capture_cell(history, "def model(): return g")
    assert only_after.source.startswith("from __future__ import annotations\n")
    assert only_after.warnings == ()
