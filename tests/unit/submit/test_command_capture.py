"""Test that a command is captured with its program and project, in the same way from notebook and terminal."""

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


def captured(line: str, own_process: str | None = None, **given: float) -> PreparedSubmission:
    capture, file = capture_command(line.split(), own_process)
    return check(capture, given, file=file)


LOOP = "import torch\nfor x in data:\n    loss(x).backward()\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python src/train.py", "script: steps in train.py line 2"),
        ("src/train.py", "script: steps in train.py line 2"),
        ("python -u src/train.py", "script: steps in train.py line 2"),
        (f"{sys.executable} src/train.py", "script: steps in train.py line 2"),
        ("python -m src.train", "script: steps in train.py line 2"),
        ("python src", "script: steps in __main__.py line 2"),
        ("python -O src/train.py", "command: -O needs an interpreter of its own"),
        ("python -W ignore src/train.py", "command: -W ignore needs an interpreter of its own"),
        ("./python3.1 src/train.py", "command: ./python3.1 is another interpreter than the job's"),
        ("python -c print(1)", "command: its code is in the line itself"),
        ("torchrun src/train.py", "command: torchrun starts programs that wire their ranks themselves"),
        ("python -m torch.distributed.run src/train.py", "command: torch.distributed.run starts programs"),
        ("python src/train.py {checkpoints}", "command: the line names {checkpoints}, for checkpoints of its own"),
        ("bash run.sh", "command: bash run.sh"),
    ],
)
def test_the_summary_says_which_form_was_chosen_and_why(project: Path, line: str, says: str) -> None:
    (project / "src" / "train.py").write_text(LOOP)
    (project / "src" / "__main__.py").write_text(LOOP)
    (project / "python3.1").touch(mode=0o755)
    found = captured(line)
    assert found.capture.relocate(found.definition.summary).startswith(says)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("run.sh", "run.sh is no Python file: write daylight submit -- bash run.sh"),
        ("a.ipynb", "a.ipynb is no Python file: write %%dlsubmit in the first line of its cell that trains"),
    ],
)
def test_a_file_of_another_kind_is_told_with_what_starts_it(project: Path, capsys, file: str, says: str) -> None:
    (project / "a.ipynb").write_text("{}")
    assert main(["submit", "--dry-run", file]) == 2
    assert says in capsys.readouterr().err


def test_a_program_that_wires_its_ranks_in_a_module_of_its_project_is_a_command(project: Path) -> None:
    (project / "src" / "train.py").write_text(f"import helper\n{LOOP}")
    (project / "src" / "helper.py").write_text("import torch.distributed as dist\n\ndist.init_process_group()\n")
    found = captured("python src/train.py")
    assert (found.config.form, found.capture.relocate(found.definition.summary)) == (
        "command",
        "command: the program wires its ranks itself in line 3 of helper",
    )


def test_a_file_with_a_loop_of_its_own_is_the_program_that_python_starts(project: Path, capsys) -> None:
    Path("src/train.py").write_text(EPOCHS.replace("END", "n"))
    roles = "import torch\ndef model(): return torch.nn.Linear(1, 1)\ndef train_data(): return []\n"
    Path("roles.py").write_text(f"{roles}def loss(output, target): return output.sum()\n")
    assert main(["submit", "--dry-run", "src/train.py", "--epochs", "3"]) == 0
    by_file = capsys.readouterr().out
    assert main(["submit", "--dry-run", "--epochs", "3", "--", "python", "src/train.py"]) == 0
    assert by_file == capsys.readouterr().out
    assert main(["submit", "--dry-run", "roles.py", "--epochs", "3"]) == 0
    assert "-- python" not in capsys.readouterr().out


def test_the_command_form_can_be_insisted_on(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "src" / "train.py").write_text(LOOP)
    found = captured("python src/train.py", "--form command asks for it")
    assert found.config.form == "command"
    assert main(["submit", "--dry-run", "--form", "command", "--", "python", "src/train.py"]) == 0
    shown = capsys.readouterr().out
    assert "# command: --form command asks for it\n" in shown
    assert " --form command -- python src/train.py\n" in shown
    assert main(["submit", "--dry-run", "--metric-pattern", "(?P<a>1)", "--", "python", "src/train.py"]) == 0
    assert "# command: --metric-pattern asks for it\n" in capsys.readouterr().out
    assert main(["submit", "--dry-run", "--form", "command", "src/train.py"]) == 2
    assert "--form command is for a program behind --" in capsys.readouterr().err


def test_a_program_with_its_command_line_is_written_as_a_script(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = '"""Doc."""\nfrom __future__ import annotations\nimport argparse\n'
    program += 'p = argparse.ArgumentParser()\np.add_argument("--lr", type=float, default=1.0)\n'
    (project / "src" / "train.py").write_text(f"{program}lr = p.parse_args().lr\n{LOOP}")
    assert main(["submit", "--as-script", "lr=0.5", "--", "python", "src/train.py", "--lr", "{lr}", "it's"]) == 0
    script = capsys.readouterr().out
    assert script.splitlines()[:4] == [
        '"""Doc."""',
        "from __future__ import annotations",
        """import sys; sys.argv[1:] = ['--lr', '0.5', "it's"]""",
        "import argparse",
    ]
    assert "__dlcommand__" not in script


LOCAL = """
import sys
import torch
import helper
print(sys.argv, __name__, __file__, helper.x)
net = torch.nn.Linear(1, 1)
for _ in range(int(sys.argv[1])):
    net(torch.ones(1, 1)).sum().backward()
sys.exit(0)
"""


def test_a_program_runs_here_as_it_would_without_daylight(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "src" / "train.py").write_text(LOCAL)
    before = list(sys.argv), list(sys.path)
    assert main(["submit", "--local", "steps=2", "--", "python", "src/train.py", "{steps}", "a b"]) == 0
    file = project / "src" / "train.py"
    assert f"['src/train.py', '2', 'a b'] __main__ {file} 1\n" in capsys.readouterr().out
    assert (sys.argv, sys.path) == before


def test_a_script_travels_with_its_modules_and_the_files_that_the_line_names(project: Path) -> None:
    found = captured("torchrun src/train.py --config=conf.yaml --lr {lr}", lr=0.1)
    assert sorted(found.travelling.files) == ["project/conf.yaml", "project/src/helper.py", "project/src/train.py"]
    assert found.travelling.project is not None
    assert found.travelling.project.paths == ("src",)
    assert found.definition.command == Command(
        words=("python", "src/train.py", "--config=conf.yaml", "--lr", "{lr}"),
        at=1,
        program="src/train.py",
        why="torchrun starts programs that wire their ranks themselves",
    )
    assert found.capture.described == "2 lines from train.py"
    assert "torchrun is left out" in found.warnings[0]


@pytest.mark.parametrize("marked", [True, False])
def test_modules_next_to_the_folder_of_a_script_travel_from_where_the_command_runs(project: Path, marked: bool) -> None:
    if not marked:
        (project / "pyproject.toml").unlink()
    added = "import os, sys\nsys.path.append(os.path.join(os.path.dirname(__file__), '../pkg'))\nimport data\n"
    (project / "src" / "train.py").write_text(f"{added}{LOOP}")
    found = captured("python src/train.py --config=conf.yaml")
    assert sorted(found.travelling.files) == ["project/conf.yaml", "project/pkg/data.py", "project/src/train.py"]
    assert found.travelling.project is not None
    assert (found.travelling.project.root, found.travelling.project.cwd) == (str(project), ".")
    assert found.definition.command is not None
    assert found.definition.command.program == "src/train.py"


def test_a_script_for_another_python_travels_and_its_packages_are_unknown(project: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "python3").symlink_to(sys.executable)
    (project / "src" / "train.py").write_text("import helper, tensorflow_of_another_python\n")
    found = captured("other/python3 -u src/train.py")
    assert sorted(found.travelling.files) == ["project/src/helper.py", "project/src/train.py"]
    words = ("other/python3", "-u", "src/train.py")
    why = f"other/python3 is another interpreter than the job's, {sys.executable}"
    assert found.definition.command == Command(words=words, at=2, program="src/train.py", why=why)
    assert any("packages of other/python3 are neither checked nor recorded" in each for each in found.warnings)


def test_this_python_by_its_path_is_the_jobs_own(project: Path) -> None:
    found = captured(f"{sys.executable} src/train.py")
    assert found.definition.command == Command(
        words=("python", "src/train.py"), at=1, program="src/train.py", taken=True
    )
    assert not any("packages of" in each for each in found.warnings)


def test_a_module_travels_with_its_package(project: Path) -> None:
    found = captured("python -m pkg.train")
    names = [name.removeprefix("project/") for name in sorted(found.travelling.files)]
    assert names == ["other.py", "pkg/__init__.py", "pkg/data.py", "pkg/train.py"]
    assert found.definition.command == Command(
        words=("python", "-m", "pkg.train"), program="pkg/train.py", module=True, taken=True
    )


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


@pytest.mark.parametrize(("encoding", "head"), [("utf-8-sig", ""), ("latin-1", "# -*- coding: latin-1 -*-\n")])
def test_a_program_is_read_in_its_own_encoding(project: Path, encoding: str, head: str) -> None:
    (project / "src" / "train.py").write_bytes(f"{head}name = 'Größe'\n{LOOP}".encode(encoding))
    found = captured("python src/train.py")
    assert "name = 'Größe'" in found.capture.source
    assert found.definition.form == "script"


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
    assert "# command: no training loop is recognised in it\n" in terminal
    assert " lr=0.5 -- python src/train.py --lr={lr}\n" in terminal
    assert notebook.strip() == terminal.replace("# daylight submit", "# %dlsubmit").strip()


EPOCHS = """import torch
from torch import nn
lr, n = 0.1, 9
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=lr)
for epoch in range(END):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    print(f"loss: {loss.item()}")
"""
SEARCH = ["submit", "--dry-run", "--trials=4", "lr=0.01..0.1:log"]


@pytest.mark.parametrize("method", ["asha", "hyperband", "tpe", "random"])
def test_a_search_trains_as_many_epochs_as_the_loop_has(project: Path, capsys, method: str) -> None:
    Path("train.py").write_text(EPOCHS.replace("END", "n"))
    assert main([*SEARCH, f"--search={method}", "--", "python", "train.py"]) == 0
    shown = capsys.readouterr().out
    assert "--epochs 9 " in shown
    assert any(f"trials of {least}9 epochs" in shown for least in ("", "1 to ")), shown


@pytest.mark.parametrize("method", ["asha", "hyperband", "tpe"])
def test_a_search_that_goes_by_epochs_is_refused_where_the_loop_does_not_show_them(
    project: Path, capsys, method: str
) -> None:
    Path("train.py").write_text(EPOCHS.replace("END", "len(str(n))"))
    assert main([*SEARCH, f"--search={method}", "--", "python", "train.py"]) != 0
    said = capsys.readouterr().err
    assert f"--search {method} decides by the epochs of its trials: line 6 loops over range(len(str(n)))" in said
    assert "with epochs = 10 above it, or search with random" in said
    assert main([*SEARCH, "--search=random", "--", "python", "train.py"]) == 0
    assert "random: 4 trials, each as long as the program trains" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["asha", "random"])
def test_a_search_of_a_command_needs_its_number_of_epochs(project: Path, capsys, method: str) -> None:
    command = ["--metric=acc:max", "--", "bash", "run.sh", "{lr}"]
    assert main([*SEARCH, f"--search={method}", *command]) != 0
    assert "write that number, which is how often it reports acc, or --steps N" in capsys.readouterr().err
    assert main([*SEARCH, f"--search={method}", "--epochs=9", *command]) == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bash run.sh {lr}", True),
        ("bash run.sh --lr={lr} --out runs/best", True),
        ("bash run.sh {{lr}}/best {lr}", True),
        ("bash run.sh {lr} --out runs/{lr}", False),
        ("bash run.sh {lr} model-{lr}.pt", False),
        ("bash run.sh {lr} {checkpoints}", False),
        ("bash own.sh {lr}", False),
    ],
)
def test_trials_of_a_command_that_may_overwrite_files_of_each_other_are_told_before(
    project: Path, capsys, line: str, told: bool
) -> None:
    Path("own.sh").write_text("./solve --lr $1 --out $DAYLIGHT_CHECKPOINTS/best.pt\n")
    assert main([*SEARCH, "--search=random", "--metric=acc:max", "--epochs=9", "--", *line.split()]) == 0
    shown = capsys.readouterr().out
    assert ("is overwritten by another trial, which may read it back as its own" in shown) == told
    assert ("Name files by the trial, as in out-{lr}, or write them into {checkpoints}" in shown) == told
    assert main(["submit", "--dry-run", "--epochs=9", "lr=0.1", "--", *line.split()]) == 0  # a single training
    assert "is overwritten" not in capsys.readouterr().out
