"""A command is captured with its program and project, and submitted in the same way from notebook and terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_ext.magics.line import separated
from jupyter_ext.magics.magics import load, unload
from jupyter_ext.submit.command import capture_command
from jupyter_ext.submit.submit import PreparedSubmission, check
from kernel_backend.cli import main
from kernel_backend.definition.command_line import Command
from kernel_backend.errors import CaptureError, InvalidRequest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    for name, text in {
        "src/train.py": "import helper\nprint(helper.x)\n",
        "src/helper.py": "x = 1\n",
        "pkg/__init__.py": "",
        "pkg/train.py": "from .data import y\nimport other\n",
        "pkg/data.py": "y = 2\n",
        "other.py": "",
        "conf.yaml": "a: 1\n",
        "run.sh": "echo {lr}\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def captured(line: str, **given: float) -> PreparedSubmission:
    capture, file = capture_command(line.split())
    return check(capture, given, file=file)


def test_a_script_travels_with_its_modules_and_the_files_that_the_line_names(project: Path) -> None:
    found = captured("torchrun src/train.py --config=conf.yaml --lr {lr}", lr=0.1)
    assert sorted(found.travelling.files) == ["project/conf.yaml", "project/src/helper.py", "project/src/train.py"]
    assert found.travelling.project is not None
    assert found.travelling.project.paths == ("src",)
    assert found.definition.command == Command(
        words=("python", "src/train.py", "--config=conf.yaml", "--lr", "{lr}"), at=1, program="src/train.py"
    )
    assert found.capture.described == "2 lines from train.py"
    assert "torchrun is left out" in found.warnings[0]


def test_a_script_for_another_python_travels_and_its_packages_are_unknown(project: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "python3").symlink_to(sys.executable)
    (project / "src" / "train.py").write_text("import helper, tensorflow_of_another_python\n")
    found = captured("other/python3 -u src/train.py")
    assert sorted(found.travelling.files) == ["project/src/helper.py", "project/src/train.py"]
    words = ("other/python3", "-u", "src/train.py")
    assert found.definition.command == Command(words=words, at=2, program="src/train.py")
    assert any("packages of other/python3 are neither checked nor recorded" in each for each in found.warnings)


def test_this_python_by_its_path_is_the_jobs_own(project: Path) -> None:
    found = captured(f"{sys.executable} src/train.py")
    assert found.definition.command == Command(words=("python", "src/train.py"), at=1, program="src/train.py")
    assert not any("packages of" in each for each in found.warnings)


def test_a_module_travels_with_its_package(project: Path) -> None:
    found = captured("python -m pkg.train")
    names = [name.removeprefix("project/") for name in sorted(found.travelling.files)]
    assert names == ["other.py", "pkg/__init__.py", "pkg/data.py", "pkg/train.py"]
    assert found.definition.command == Command(words=("python", "-m", "pkg.train"), module=True)


def test_a_shell_script_travels_and_its_braces_are_its_own(project: Path) -> None:
    found = captured("bash run.sh")
    assert list(found.travelling.files) == ["project/run.sh"]
    assert found.definition.hyperparameters == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python src/trian.py", "src/trian.py is not there (did you mean train.py?)"),
        ("python src", "src is a folder"),
        ("./run.sh", "not executable: chmod +x ./run.sh"),
        ("other/python src/train.py", "there is no Python other/python: name another, or write python for this one"),
        ("run.sh", "no program run.sh in PATH: write ./run.sh"),
    ],
)
def test_a_program_that_cannot_start_is_refused(project: Path, line: str, says: str) -> None:
    with pytest.raises(CaptureError) as refused:
        captured(line)
    assert says in refused.value.message


def test_a_package_that_is_missing_is_told_before_anything_is_sent(project: Path) -> None:
    (project / "src" / "train.py").write_text("import nowhere_at_all\n")
    with pytest.raises(CaptureError, match=r"train.py line 1 imports nowhere_at_all, which this Python does not have"):
        captured("python src/train.py")


def test_a_module_that_is_missing_is_refused(project: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no module pkg\.trian"):
        captured("python -m pkg.trian")


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        ("lr=1 -- python train.py --lr {lr}", "lr=1 ", ["python", "train.py", "--lr", "{lr}"]),
        ("--name 'a -- b' -- bash -c 'a  b'", "--name 'a -- b' ", ["bash", "-c", "a  b"]),
        ("train.py --wait", "train.py --wait", None),
    ],
)
def test_a_line_is_split_before_the_command(line: str, options: str, command: list[str] | None) -> None:
    assert separated(line) == (options, command)


def test_notebook_and_terminal_show_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--dry-run", "lr=0.5", "--slots=2", "--", "python", "src/train.py", "--lr={lr}"]) == 0
    terminal = capsys.readouterr().out
    shell = InteractiveShell()
    load(shell)
    try:
        shell.run_cell("%dlsubmit --dry-run lr=0.5 --slots=2 -- python src/train.py --lr={lr}").raise_error()
    finally:
        unload(shell)
    notebook = capsys.readouterr().out
    assert "# command: python src/train.py --lr={lr}" in terminal
    assert " lr=0.5 -- python src/train.py --lr={lr}\n" in terminal
    assert notebook.strip() == terminal.replace("# daylight submit", "# %dlsubmit").strip()
