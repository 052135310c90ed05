"""Test parsing the line of a magic, and which cells a kernel records as executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from jupyter_ext.capture import Capture, Cell, capture_cell
from jupyter_ext.magics.line import words
from jupyter_ext.magics.magics import DaylightMagics, load, unload
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidRequest


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--slots 2  lr=1e-2", ["--slots", "2", "lr=1e-2"]),
        ("--name 'my run' x='a b'", ["--name", "my run", "x='a b'"]),
        ('--name="my run"', ["--name=my run"]),
        ("layers=[64, 32] act=['a', 'b']", ["layers=[64, 32]", "act=['a', 'b']"]),
        ("lr={rate / 2} --name run-{names['a']}", ["lr=0.05", "--name", "run-b c"]),
        ("blocks=[{'kind': 'conv'}, {'n': 2}]", ["blocks=[{'kind': 'conv'}, {'n': 2}]"]),
        ("x=[{'a':{'b':1}}] y={rate}", ["x=[{'a':{'b':1}}]", "y=0.1"]),
        ("act='relu','gelu' lr={rate}..1", ["act='relu','gelu'", "lr=0.1..1"]),
        ("", []),
    ],
)
def test_a_line_is_split_and_filled_in(line: str, expected: list[str]):
    assert words(line, {"rate": 0.1, "names": {"a": "b c"}}) == expected


@pytest.mark.parametrize("line", ["--name 'my run", "lr={nothing}"])
def test_what_cannot_be_read_is_refused(line: str):
    with pytest.raises(InvalidRequest):
        words(line, {})


def made() -> InteractiveShell:
    """Return a shell without history files, as a second user of these would print an error."""
    config = Config()
    config.HistoryManager.enabled = False
    return InteractiveShell(config=config)


@pytest.fixture
def shell() -> Any:
    shell = made()
    load(shell)
    yield shell
    unload(shell)


def test_the_verbs_of_dl_are_completed(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path))
    assert shell.complete(None, "%dl pru")[1] == ["prune"]
    assert shell.complete(None, "%dl metrics 12 --ki")[1] == ["--kind"]
    assert shell.complete(None, "%dl list --state p")[1] == ["paused"]


def test_the_options_of_dlsubmit_are_completed(shell: Any):
    assert shell.complete(None, "%%dlsubmit --slots 2 --log")[1] == ["--logical-workers"]
    assert shell.complete(None, "%%dlsubmit --view w")[1] == ["widget"]


def executed(shell: Any) -> list[Any]:
    return shell._daylight_magics.recorder.cells


def run(shell: Any, *cells: str) -> None:
    for cell in cells:
        shell.run_cell(cell, store_history=True)


def test_cells_are_remembered_with_their_numbers_and_where_they_failed(shell: Any):
    run(shell, "x = 1", "\n\ny = 2\n1 / 0\nz = 3", "def f():\n    return 1 / 0\n\nf()", "%%time\na = 1\n1 / 0", "x = (")
    assert [(cell.number, cell.error_line) for cell in executed(shell)] == [(1, None), (2, 4), (3, 4), (4, 3)]


def test_a_shown_value_is_noted(shell: Any):
    run(shell, "1 + 1", "x = 1")
    assert [cell.displayed for cell in executed(shell)] == [True, False]


def test_cells_from_before_the_extension_was_loaded_count_too():
    shell = made()
    run(shell, "x = 1", "y = 2")
    shell.user_ns["load"] = lambda: load(shell)
    run(shell, "load()")
    run(shell, "z = 3")
    assert [cell.source for cell in executed(shell)] == ["x = 1", "y = 2", "load()", "z = 3"]
    unload(shell)


def test_a_role_takes_no_name_from_a_value_of_the_notebook_that_is_no_function(
    shell: Any, capsys: pytest.CaptureFixture[str]
):
    roles = "def model(): return 1\ndef train_data(): ...\ndef loss(): ...\n"
    capture = Capture(roles, (), roles_from=1)
    shell.user_ns["define"] = lambda: shell._daylight_magics._define(roles, parse(roles), capture)
    run(shell, "model = ['trained']\ndef loss(): return 'older'", "define()")
    assert shell.user_ns["model"] == ["trained"]
    assert shell.user_ns["train_data"]() is None
    assert shell.user_ns["loss"]() is None  # one function makes way for another
    assert executed(shell)[-1].retained == {"model"}
    assert "model: the notebook keeps its value" in capsys.readouterr().out
    run(shell, "define()")
    assert shell.user_ns["model"] == ["trained"]


def test_a_later_cell_gets_the_value_that_the_notebook_has_kept():
    submitted = Cell(
        "%%dlsubmit\ndef model(): return 1\ndef other(): return 2", number=2, retained=frozenset({"model"})
    )
    capture = capture_cell([Cell("model = 'trained'", number=1), submitted], "print(model, other())")
    assert "model = 'trained'" in capture.source
    assert "def model" not in capture.source
    assert "def other" in capture.source


def test_dry_run_prints_the_module_and_sends_nothing(shell: Any, capsys: pytest.CaptureFixture[str]):
    run(
        shell,
        "k = 3",
        "%%dlsubmit --dry-run lr=0.5\ndef model(lr=1.0): return k\ndef train_data(): ...\ndef loss(): ...",
    )
    printed = capsys.readouterr().out
    assert "# 4 lines from cells 1 and 2" in printed
    assert "# lr = 0.5" in printed
    assert "# cell [1]\nk = 3" in printed
    assert "# %%dlsubmit --slots 1 --backend auto" in printed
    assert "lr=0.5" in printed


SEARCHED = """%%dlsubmit --dry-run --slots 2 {}
def model(width=8, blocks=()): ...
def train_data(): ...
def validation_data(): ...
def loss(lr: float = 0.1, drop=0.0): ..."""


def test_dry_run_of_a_search_tells_what_is_searched_and_how_much_that_trains(
    shell: Any, capsys: pytest.CaptureFixture[str]
):
    line = "--search asha --epochs 256 --trials 9 lr=1e-4..1e-1:log blocks=1..3 block.kind=conv,res@each drop=0.5"
    run(shell, SEARCHED.format(line))
    printed = capsys.readouterr().out
    assert "# drop = 0.5\n" in printed
    assert "# lr = " not in printed
    assert "#   lr: 0.0001 to 0.1 on a logarithmic scale\n#   blocks: whole numbers from 1 to 3\n" in printed
    assert "# asha: 9 trials of 1 to 256 epochs on 2 slots, that is 18 to 4,608 epochs of a slot\n" in printed
    (spelled,) = [each for each in printed.splitlines() if each.startswith("# %%dlsubmit")]
    run(shell, SEARCHED.format(spelled.removeprefix("# %%dlsubmit")))
    assert spelled in capsys.readouterr().out


def test_a_number_that_is_not_finite_is_spelled_out_in_a_dry_run(shell: Any, capsys: pytest.CaptureFixture[str]):
    run(shell, SEARCHED.format("--search grid lr=0.1,inf,-inf drop=nan blocks=[1,-inf]"))
    printed = capsys.readouterr().out
    assert "# blocks = [1, -inf]\n# drop = nan\n" in printed
    assert "#   lr: 0.1, inf or -inf\n" in printed
    (spelled,) = [each for each in printed.splitlines() if each.startswith("# %%dlsubmit")]
    run(shell, SEARCHED.format(spelled.removeprefix("# %%dlsubmit")))
    assert spelled in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lr=1e400", "'lr=1e400': 1e400 is more than a number can be (1.8e308): write inf if that is meant"),
        ("drop=infinite", "takes a number"),
        ("lr=1e-4..1e-1:log", "'lr=0.0001..0.1:log' is searched only with --search: add --search asha"),
        ("--search asha --epochs 3", "--search asha has nothing to search"),
        ("--search random wdith=8,16", "wdith is no hyperparameter (did you mean width?)"),
        ("--search random --trials 0 lr=1..1", "--trials 0: must be at least 1\n'lr=1..1': 1..1 holds one value only"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_anything_is_sent(shell: Any, line: str, said: str):
    result = shell.run_cell(SEARCHED.format(line))
    assert said in str(result.error_in_exec)


def test_all_that_is_wrong_is_told_at_once_each_with_its_cell(shell: Any, tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    run(shell, "files = !ls", "token = dict(password='hunter2')")
    result = shell.run_cell(
        "%%dlsubmit --slot 2 --out 2x --include nothing.txt --capture gone lr=\n"
        "import nowhere_at_all\ndef model(): return files, token, df\ndef train_data(): ...",
        store_history=True,
    )
    lines = str(result.error_in_exec).split("\n")
    for each in (
        "there is no option --slot: did you mean --slots?",
        "--out 2x: this is no name of a variable",
        "'lr=' has no value: write lr=1e-2, or lr='' for an empty text",
        "--capture gone: the notebook has no 'gone'",
        "this cell uses 'files', made by 'files = !ls' in cell [1], which a job cannot repeat. "
        "Write it in Python, or add --capture files.",
        "cell [3] line 2 imports nowhere_at_all, which this Python does not have. Install it first.",
        f"--include nothing.txt: there is nothing of that name in {tmp_path}",
    ):
        assert each in lines
    assert any(line.startswith("cell [2] line 1 holds what looks like a secret.") for line in lines)
    assert any("uses 'df' (line 3)" in line for line in lines)
    assert any("no loss" in line for line in lines)
    assert len(lines) == 12  # the last three are what to write


def test_help_and_question_mark_agree(shell: Any, capsys: pytest.CaptureFixture[str]):
    run(shell, "%dlsubmit --help")
    printed = capsys.readouterr().out.strip()
    assert printed == (DaylightMagics.dlsubmit.__doc__ or "").strip()
    assert "--batch-size" in printed


@pytest.mark.parametrize(
    ("cell", "name", "says"),
    [
        ("%%dlsubmit --slot 2\nx = 1", "InvalidRequest", "did you mean --slots?"),
        ("%%dlsubmit --slots 0\nx = 1", "InvalidRequest", "--slots 0: must be at least 1"),
        ("%%dlsubmit lr=\nx = 1", "InvalidRequest", "'lr=' has no value"),
        ("%%dlsubmit --out 2x\nx = 1", "InvalidRequest", "no name of a variable"),
        ("%dlsubmit", "InvalidRequest", "nothing to submit"),
        ("%dlsubmit nowhere.py", "InvalidRequest", "there is no file nowhere.py"),
        ("%%dlsubmit\nx = 1", "InvalidDefinition", "no model and no train_data"),
        ("%%dlsubmit\ndef model(:\n    ...", "InvalidDefinition", "cell [1] line 2"),
        (
            "\n%%dlsubmit\ndef model(): return df\ndef train_data(): ...\ndef loss(): ...",
            "CaptureError",
            "uses 'df' (line 3)",
        ),
        (
            "%%dlsubmit\ndef model(width): ...\ndef train_data(): ...\ndef loss(): ...",
            "InvalidDefinition",
            "width (cell [1] line 2) has no value",
        ),
        ("%dl lst", "InvalidRequest", "did you mean list?"),
        ("%dl show 1x", "InvalidRequest", "'1x' names no experiment"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_without_a_traceback(
    shell: Any, capsys: pytest.CaptureFixture[str], cell: str, name: str, says: str
):
    result = shell.run_cell(cell, store_history=True)
    error = result.error_in_exec
    assert type(error).__name__ == name
    assert says in str(error)
    assert "Traceback" not in capsys.readouterr().out
