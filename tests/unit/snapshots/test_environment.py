"""Test the record of the environment."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend.snapshots.environment import record


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=folder, check=True, capture_output=True
    )


def test_python_machine_and_distributions_are_recorded(tmp_path: Path):
    found = record(tmp_path)
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.cores == os.cpu_count()
    assert found.distributions["pydantic"] == importlib.metadata.version("pydantic")
    assert found.distributions["pydantic-core"] == importlib.metadata.version("pydantic_core")


def test_only_variables_that_change_numbers_are_recorded(tmp_path: Path):
    given = {"OMP_NUM_THREADS": "2", "MKL_CBWR": "AVX2", "PASSWORD": "x", "COMPANY_OMP_X": "1"}
    assert record(tmp_path, given).variables == {"OMP_NUM_THREADS": "2", "MKL_CBWR": "AVX2"}


@pytest.mark.usefixtures("plain_git")
def test_git_says_the_commit_and_whether_files_differ(tmp_path: Path):
    assert record(tmp_path).git_commit is None
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "one")
    found = record(tmp_path)
    assert found.git_commit is not None
    assert len(found.git_commit) == 40
    assert found.git_dirty is False
    (tmp_path / "a").write_text("2")
    (tmp_path / "folder").mkdir()
    assert record(tmp_path / "folder").git_dirty is True


def test_recording_imports_no_torch():
    code = (
        "import sys; from kernel_backend.snapshots.environment import record; record(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
