"""Test the completion of `daylight` in each shell that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend.cli.completion import SHELLS

# How a shell completes the words `daylight $1 $2 ...`; the last one is at the cursor.
_ASK = {
    "bash": 'COMP_WORDS=(daylight "$@"); COMP_CWORD=$#; _daylight daylight; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'words=(daylight "$@"); CURRENT=$#words; _daylight',
    "fish": "complete -C (string join ' ' -- daylight $argv)",
}
_STUBS = {"zsh": "compdef() { : }\ncompadd() { shift; print -l -- ${(P)1} }\n_files() { print -l *(N) }\n"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["prun"], ["prune"]),
        (["metrics", "12", "--ki"], ["--kind"]),
        (["list", "--state", "dele"], ["deleted"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["submit", "--logical-w"], ["--logical-workers"]),
    ],
)
def test_a_shell_completes_verbs_options_and_states(shell: str, typed: list[str], found: list[str], tmp_path: Path):
    if shutil.which(shell) is None and not os.environ.get("CI"):  # where nothing may be missing
        pytest.skip(f"there is no {shell} here")
    script = tmp_path / "script"
    script.write_text(f"{_STUBS.get(shell, '')}{SHELLS[shell]}{_ASK[shell]}\n")
    here = {**os.environ, "PATH": f"{_command(tmp_path)}:{os.environ['PATH']}", "DAYLIGHT_HOME": str(tmp_path / "home")}
    told = subprocess.run([shell, script, *typed], env=here, cwd=tmp_path, capture_output=True, text=True)
    assert told.stderr == ""
    assert sorted(told.stdout.split()) == found


def _command(folder: Path) -> Path:
    """Return a folder in which `daylight` is the command of this checkout."""
    bin = folder / "bin"
    bin.mkdir()
    (bin / "daylight").write_text(f'#!/bin/sh\nexec {sys.executable} -m kernel_backend.cli "$@"\n')
    (bin / "daylight").chmod(0o755)
    return bin
