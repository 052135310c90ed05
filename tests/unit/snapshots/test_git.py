"""Test the record of a git checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kernel_backend.snapshots import git

pytestmark = pytest.mark.usefixtures("plain_git")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    run(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("one\nlast\n")
    (tmp_path / "image").write_bytes(bytes(range(256)))
    (tmp_path / ".gitignore").write_text("ignored\n")
    run(tmp_path, "add", ".")
    run(tmp_path, "commit", "-qm", "one")
    return tmp_path


def run(folder: Path, *arguments: str, **more: object) -> bytes:
    names = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run([*names, *arguments], cwd=folder, check=True, capture_output=True, **more).stdout


def test_a_clean_checkout_has_no_difference(checkout: Path):
    assert git.diff(checkout) is None


def test_outside_of_git_there_is_none(tmp_path: Path):
    assert git.diff(tmp_path) is None
    assert git.commit(tmp_path) == (None, None)


@pytest.mark.parametrize("setting", ["", "diff.noprefix=true", "diff.mnemonicPrefix=true", "diff.context=0"])
def test_the_difference_makes_the_commit_into_the_files_as_they_were(checkout: Path, setting: str):
    """The diff applies with `git apply`, whatever options of git the user has set."""
    if setting:
        run(checkout, "config", *setting.split("="))
    (checkout / "a.py").write_text("two\nlast\n")
    (checkout / "image").write_bytes(bytes(range(255, -1, -1)))
    (checkout / "sub").mkdir()
    (checkout / "sub" / "neü.py").write_text("")
    (checkout / "ignored").write_text("")
    text = git.diff(checkout / "sub")
    assert text is not None
    assert text.startswith("untracked: sub/neü.py\ndiff --git a/a.py")
    run(checkout, "stash")
    run(checkout, "apply", input=text.encode())
    assert (checkout / "a.py").read_text() == "two\nlast\n"
    assert (checkout / "image").read_bytes() == bytes(range(255, -1, -1))


def test_before_the_first_commit_git_has_nothing_to_say(tmp_path: Path):
    run(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    assert git.diff(tmp_path) is None
    assert git.commit(tmp_path) == (None, False)


def test_a_difference_beyond_the_limit_is_left_out_and_said_to_be(checkout: Path):
    (checkout / "a.py").write_bytes(os.urandom(git.DIFF_BYTES))
    assert git.diff(checkout) is not None
    assert "left out" in git.diff(checkout)
