"""Test the captured module: it has the cells' own text, the origin of each line, and all problems."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from jupyter_ext.capture import Capture, Cell, capture_cell, capture_file
from jupyter_ext.capture.statements import analyse
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.snapshot import Environment, Snapshot

HELPERS = """# How wide.
width = 4  # neurons
print(width)

def helper(x):
    \"\"\"Doubles.

    # not a comment
    \"\"\"
    return x * 2   # text stays
"""
TARGET = "def model(): return helper(width)\n\ndef loss(output, target): return cfg\n"


def message(capture: Capture) -> str:
    (problem,) = capture.problems
    return problem.message


def test_text_comments_and_order_stay_and_every_piece_is_marked():
    capture = capture_cell(["import os", "cfg = 3", HELPERS], TARGET, line=2)
    assert capture.source == (
        "# cell [2]\ncfg = 3\n\n"
        "# cell [3]\n# How wide.\nwidth = 4  # neurons\n\n"
        + "\n".join(HELPERS.split("\n")[4:-1])
        + "\n\n# cell [4]\n"
        + TARGET.rstrip("\n")
        + "\n"
    )
    assert capture.described == "12 lines from cells 2, 3 and 4"


def test_every_line_maps_back_to_its_cell_exactly():
    history = [Cell("import os\n\n\ncfg = 3", number=7), Cell(HELPERS, number=9), "%matplotlib inline\nd = 1"]
    capture = capture_cell(history, "%env A=1\n" + TARGET + "\nx = d", number=12, line=2)
    snapshot = Snapshot(
        version="",
        numerics=1,
        pieces=capture.pieces,
        roles_from=capture.roles_from,
        environment=Environment(python="", implementation="", platform="", cpu="", cores=1, distributions={}),
    )
    texts = {
        7: "import os\n\n\ncfg = 3",
        9: HELPERS,
        3: "%matplotlib inline\nd = 1",
        12: f"\n# %env A=1\n{TARGET}\nx = d",
    }
    mapped = 0
    for number, text in enumerate(capture.source.split("\n"), start=1):
        found = snapshot.locate(number)
        if found is not None:
            cell, _, line = found
            assert cell is not None
            assert texts[cell].split("\n")[line - 1] == text
            assert capture.where(number) == f"cell [{cell}] line {line}"
            mapped += 1
    assert mapped == sum(piece.count for piece in capture.pieces)
    assert snapshot.locate(capture.roles_from) == (12, None, 2)


def test_messages_about_the_module_are_told_by_cell():
    capture = capture_cell(["cfg = 3", "def helper(x): ...\nwidth = 4"], TARGET, line=2)
    assert capture.relocate(f"boom (line {capture.roles_from})") == "boom (cell [3] line 2)"


def test_several_lines_in_a_message_are_told_by_cell():
    capture = capture_cell(["cfg = 3", "def helper(x): ...\nwidth = 4"], TARGET, line=2)
    own, helper = capture.roles_from, capture.source.split("\n").index("def helper(x): ...") + 1
    assert capture.relocate(f"boom (lines {own} to {own + 2})") == "boom (cell [3] lines 2 to 4)"
    assert capture.relocate(f"epochs in lines {own} and {own + 1}") == "epochs in cell [3] lines 2 and 3"
    assert capture.relocate(f"lines {helper}, {own} and {own + 1}: no") == (
        "cell [2] line 1, cell [3] line 2 and cell [3] line 3: no"
    )
    assert capture.relocate(f"boom in line {own}, 3 times") == "boom in cell [3] line 2, 3 times"
    assert capture.relocate(f"lines {own}, {own} and {own} of net") == f"lines {own}, {own} and {own} of net"


def test_magics_stay_out_and_lines_keep_their_place():
    target = "%matplotlib inline\nx = 1\n!ls \\\n  -l\nif x:\n    !echo\n    y = 2\n"
    capture = capture_cell([], target)
    lines = capture.source.split("\n")[1:]
    assert lines == [
        "# %matplotlib inline",
        "x = 1",
        "# !ls \\",
        "#   -l",
        "if x:",
        "    pass  # !echo",
        "    y = 2",
        "",
    ]
    assert capture.problems == ()


def test_a_needed_name_made_by_a_shell_line_is_a_problem_with_a_way_out():
    capture = capture_cell(["files = !ls data"], "def train_data(): return files")
    assert message(capture) == (
        "this cell uses 'files', made by 'files = !ls data' in cell [1], which a job cannot repeat. "
        "Write it in Python, or add --capture files."
    )


def test_all_problems_are_told_at_once_with_their_cells():
    capture = capture_cell(
        ["a = !ls", "def f(): return unknown", Cell("b = 1/0", error_line=1)],
        "def model(): return a, b, f(), df, Out[1]",
        {"df": object()},
    )
    told = {problem.name: problem.message for problem in capture.problems}
    assert set(told) == {"a", "b", "unknown", "df", "Out"}
    assert "cell [2], which this cell needs, uses 'unknown' (line 1)" in told["unknown"]
    assert "cell [3] did not come to: it failed before" in told["b"]
    assert "the notebook holds a object of that name" in told["df"]
    assert "only in a notebook" in told["Out"]


@pytest.mark.parametrize("text", ["%run helpers.py", "%%bash --out thing\nls"])
def test_magics_that_may_make_any_name_are_mentioned(text: str):
    assert text.split("\n")[0] in message(capture_cell([text], "def model(): return thing"))


def test_small_values_and_imports_without_a_cell_are_written_in_with_a_warning():
    namespace = {"rates": [0.1, 0.2], "os": types, "Path": Path, "big": "x" * 4000, "m": __import__("json")}
    capture = capture_cell([], "def model(): return rates, Path, big, m", namespace)
    assert "rates = [0.1, 0.2]\n" in capture.source
    assert "import json as m\n" in capture.source
    assert "from pathlib import Path\n" in capture.source
    assert len(capture.warnings) == 3
    assert [problem.name for problem in capture.problems] == ["big"]


def test_builtins_and_names_of_modules_are_no_problem():
    assert capture_cell([], "def model(): return len(__file__), __name__, ValueError").problems == ()


@pytest.mark.parametrize("magic", ["%%time", "%%capture out", "%%dlsubmit --slots 2 lr=1"])
def test_bodies_of_transparent_cell_magics_are_cells(magic: str):
    capture = capture_cell([f"{magic}\nx = 1\ny = 2"], "def model(): return y")
    assert capture.problems == ()
    assert capture.pieces[0].cell_line == 3


def test_a_magic_within_a_needed_block_is_left_out():
    capture = capture_cell(["if True:\n    !mkdir -p data\n    root = 'data'"], "def train_data(): return root")
    assert capture.problems == ()
    assert "    pass  # !mkdir -p data\n    root = 'data'" in capture.source


def test_a_timed_statement_is_a_statement():
    capture = capture_cell(["%time x = 1"], "def model(): return x")
    assert capture.problems == ()
    assert capture.source.startswith("# cell [1]\nx = 1\n")


def test_pip_lines_are_requirements_with_the_installed_version():
    capture = capture_cell(["%pip install -q pydantic 'nothing-of-this-name>=2'\n!pip install httpx"], "x = 1")
    names = [each.split("==")[0] for each in capture.requirements]
    assert names == ["pydantic", "nothing-of-this-name", "httpx"]
    assert "==" in capture.requirements[0]


def test_variables_of_the_environment_are_set_in_the_module_but_secrets_are_not():
    capture = capture_cell(["%env MODE=fast\n%env API_TOKEN abc"], "x = 1")
    assert capture.source.startswith("import os\nos.environ['MODE'] = 'fast'\n")
    assert "abc" not in capture.source
    assert any("API_TOKEN" in warning for warning in capture.warnings)


def test_a_secret_that_no_cell_makes_is_not_written_in():
    capture = capture_cell([], "def model(): return api_key, rate", {"api_key": "abc", "rate": 0.1})
    assert "abc" not in capture.source
    assert "abc" not in " ".join(capture.warnings)
    assert "rate = 0.1" in capture.source
    assert "'api_key' (line 1), which no executed cell defines (the notebook holds a str" in message(capture)


def test_secrets_in_the_environment_stay_out_though_other_variables_come_along():
    capture = capture_cell(["import os\nos.environ['API_KEY'] = 'abc'\nos.environ['MODE'] = 'fast'"], "y = os.sep")
    assert "abc" not in capture.source
    assert "os.environ['MODE'] = 'fast'" in capture.source
    assert "cell [1] line 2" in capture.warnings[0]


def test_python_that_asks_ipython_itself_is_a_problem_and_not_dropped():
    capture = capture_cell(["x = len(get_ipython().getoutput('ls'))"], "def model(): return x")
    assert "'get_ipython' (line 1), which exists only in a notebook" in message(capture)


def test_future_imports_come_first():
    capture = capture_cell(["from __future__ import annotations\nx = 1"], "from __future__ import division\ny = x")
    assert capture.source.startswith("from __future__ import annotations, division\n")
    compile(capture.source, "definition.py", "exec")


def test_a_change_of_folder_between_cells_that_run_again_is_told():
    roles = "def model(): return rows"
    history = ["import math", "rows = open('a.csv').read()", "k = 2", "%cd data", "more = open('b.csv').read()"]
    (told,) = capture_cell(history, roles).warnings
    assert told.startswith("cell [2] ran before %cd data in cell [4]: a job runs all of it in the folder of now")
    assert capture_cell(history, "def model(): return k, more").warnings == ()
    assert capture_cell(["rows = list(range(3))", "%cd data"], roles).warnings == ()
    assert capture_cell([*history[:3], Cell("1 / 0\n%cd data", error_line=1)], roles).warnings == ()


def test_heavy_statements_that_would_run_again_are_told():
    slow = Cell("table = [i for i in range(3)]", seconds=12.3, number=1)
    capture = capture_cell([slow, "class M:\n    def fit(self): ...\nm = M()\nm.fit(table)"], "def model(): return m")
    assert any("cell [1] took 12 s" in warning for warning in capture.warnings)
    assert any("cell [2] line 4 trains something" in warning for warning in capture.warnings)


def test_a_training_in_a_function_of_a_slow_cell_is_told_as_a_training():
    helpers = (
        "def step(m):\n    m.loss().backward()\ndef fit(m):\n    for _ in range(3):\n        step(m)\n    return 0.1\n"
    )
    slow = Cell("class M:\n    def train(self): ...\nm = M()\nm.train()\nrate = fit(m)", seconds=12.3, number=2)
    (told,) = capture_cell([Cell(helpers, number=1), slow], "def model(): return rate").warnings
    assert told.startswith("cell [2] line 5 trains something")


def test_a_target_that_is_no_python_is_kept_for_the_message():
    capture = capture_cell(["x = 1"], "def model(:\n    ...", line=2)
    (problem,) = capture.problems
    assert problem.message == "cell [2] line 2: invalid syntax: def model(:"
    assert capture.where(capture.roles_from) == "cell [2] line 2"


def test_values_that_the_cell_leaves_alone_are_to_be_compared():
    history = ["import os", "class Net: ...", "def helper(): return k", "k, lr, n, xs, unused = 1, 2, 3, [], 5\ny = lr"]
    target = "n = 4\nxs.append(1)\ndef model(): return Net, os, helper(), n, xs, y"
    assert capture_cell(history, target).compared == ("k", "y")


def test_a_file_is_one_piece(tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text("x = 1\ndef model(): ...\n")
    capture = capture_file(path)
    assert capture.source == path.read_text()
    assert capture.where(2) == "train.py line 2"
    assert capture.described == "2 lines from train.py"


def many_cells(count: int) -> list[str]:
    cells = []
    for i in range(count):
        body = "\n".join(f"    t{i}_{k} = helper_{max(i - 1, 0)}(x, {k}) + cfg['a']" for k in range(8))
        cells.append(
            f"import math\nv{i} = {i}\ncfg = {{'a': v{i}}}\ncfg['b'] = {i}\n"
            f"def helper_{i}(x, k=v{i}):\n{body}\n    return x"
        )
    return cells


def test_four_hundred_cells_are_sliced_quickly():
    """Cost is measured in function calls, which do not depend on the machine's load: it is linear in the cells."""
    calls = dict.fromkeys((100, 400), 0)
    for count in calls:
        cells = many_cells(count)
        analyse.cache_clear()

        def called(frame: object, event: str, argument: object, count: int = count) -> None:
            calls[count] += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(called)
        try:
            capture = capture_cell(cells, f"def model(): return helper_{count - 1}(1)")
        finally:
            sys.setprofile(before)
        assert capture.problems == ()
        assert capture.source.count("def helper_") == count
    assert calls[400] < 4.2 * calls[100]
    assert calls[400] < 4_000_000  # thrice what it takes


@pytest.mark.parametrize("terms", [900, 5000])
def test_a_cell_that_is_nested_too_deeply_stands_in_nobodys_way(terms: int):
    long = "x = " + "+".join(["1"] * terms)
    roles = "def model(): return {}\ndef train_data(): ...\ndef loss(): ...\n"
    assert not capture_cell([long], roles, {}).problems
    (problem,) = capture_cell([long], f"y = x\n{roles}", {}).problems
    assert problem.message.startswith("this cell uses 'x'")
    with pytest.raises(InvalidDefinition, match="nested too deeply"):
        parse("x = " + "+".join(["1"] * 5000) + "\n" + roles)
