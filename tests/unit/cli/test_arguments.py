"""Test the command line without a service: its help, and errors for invalid input."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernel_backend import __version__
from kernel_backend.cli import main, verbs


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernel_backend.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_process_ends_with_the_exit_code():
    assert run("--version").stdout.strip() == f"daylight {__version__}"
    wrong = run("show", "1x")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'1x' names no experiment" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize("name", verbs())
def test_every_verb_has_help_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: daylight {name}" in text
    assert f"  daylight {name}" in text.split("examples:")[1]
    assert main(["help", name]) == 0
    assert capsys.readouterr().out.strip() == text.strip()


def test_the_help_names_every_verb_and_the_exit_codes(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in verbs())
    assert "3 no service" in text
    assert main([]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lst", "did you mean list?"),
        ("show", "NUMBER; see daylight show --help"),
        ("show 1 2", "'2' is one word too many"),
        ("show 1.2.3", "names no experiment"),
        ("logs 1 --rnk 2", "did you mean --rank?"),
        ("logs 1 --rank -1", "whole number from 0 up"),
        ("metrics 1 --kind gossip", "validation"),
        ("submit", "one file, which is missing"),
        ("list --limit many", "many: must be a whole number"),
        ("serve --host 0.0.0.0", "no option --host"),
    ],
)
def test_what_is_not_understood_is_2_with_the_way_out(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path))
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err
