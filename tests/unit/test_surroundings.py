"""What travels without being asked, and what does not although it would."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jupyter_ext.surroundings import surroundings
from kernel_backend.model.snapshot import GIT_DIFF


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=folder, check=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("one = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_what_is_not_committed_travels_as_a_difference(checkout: Path):
    assert GIT_DIFF not in surroundings(checkout, ()).files
    (checkout / "a.py").write_text("one = 2\n")
    assert b"+one = 2" in surroundings(checkout, ()).files[GIT_DIFF]


@pytest.mark.parametrize("line", ['password = "hunter2x"', 'x = "known-value"'])
def test_a_difference_with_a_secret_stays_behind_and_that_is_said_without_it(checkout: Path, line: str):
    (checkout / "a.py").write_text(f"{line}\n")
    found = surroundings(checkout, ["known-value"])
    assert GIT_DIFF not in found.files
    (warning,) = found.warnings
    assert warning.startswith("git.diff is not kept with the snapshot: line 7 holds what looks like ")
    assert "hunter2x" not in warning
    assert "known-value" not in warning


def test_one_with_a_secret_that_was_taken_out_stays_behind_too(checkout: Path):
    (checkout / "a.py").write_text('password = "hunter2x"\n')
    git(checkout, "commit", "-qam", "two")
    (checkout / "a.py").write_text("")
    assert GIT_DIFF not in surroundings(checkout, ()).files
