"""Test which files a submission includes without a request, and which it leaves out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jupyter_ext.submit import implicit_context as module
from jupyter_ext.submit.implicit_context import ArchiveBudget, ImplicitContext
from kernel_backend.model.snapshot import GIT_DIFF

ENOUGH = ArchiveBudget(1000, 10**8)


def surroundings(folder: Path, known: tuple[str, ...] | list[str], room: ArchiveBudget = ENOUGH) -> ImplicitContext:
    return module.collect_context(folder, known, room)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=folder, check=True)


@pytest.fixture
def checkout(tmp_path: Path, plain_git: None) -> Path:
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings", "DB_PASSWORD=hunter2xyz\n"),
        ("conf.yaml", "password: hunter2xyz\n"),
        ("conf.yaml", "\tpassword: hunter2xyz\n"),
        ("login.sh", "export API_TOKEN=hunter2xyz123456789\n"),
    ],
)
def test_the_marks_of_a_difference_hide_nothing(checkout: Path, name: str, text: str):
    (checkout / name).write_text("")
    git(checkout, "add", ".")
    (checkout / name).write_text(text)
    assert GIT_DIFF not in surroundings(checkout, ()).files


@pytest.mark.parametrize("path", [".env", "sub/.env", "private/notes.txt", "sub/secret.txt", "sub/id_rsa"])
def test_ignored_files_are_no_part_of_a_difference(checkout: Path, path: str):
    (checkout / ".daylightignore").write_text("private/\nsecret.txt\n")
    (checkout / path).parent.mkdir(exist_ok=True)
    (checkout / path).write_text("before")
    git(checkout, "add", "-f", ".")
    git(checkout, "commit", "-qm", "two")
    (checkout / path).write_text("quite-innocent")
    (checkout / "a.py").write_text("one = 2\n")
    (checkout / path).with_name(".netrc").write_text("")
    changes = surroundings(checkout, ()).files[GIT_DIFF]
    assert b"+one = 2" in changes
    assert b"quite-innocent" not in changes
    assert b".netrc" not in changes


def test_what_there_is_no_room_for_stays_behind_and_that_is_said(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    (checkout / "a.py").write_text("one = 2\n")
    code = {f"editable/big/{number}.py": b"x = 1\n" for number in range(5)} | {"editable/small/a.py": b"x = 1\n"}
    monkeypatch.setattr("kernel_backend.snapshots.environment.editable_files", lambda: code)
    found = surroundings(checkout, (), ArchiveBudget(4, 10**6))
    assert set(found.files) == {GIT_DIFF, "editable/small/a.py"}
    (warning,) = found.warnings
    assert warning.startswith("the code of big, an editable install (5 files, ")
    assert set(surroundings(checkout, (), ArchiveBudget(100, 10)).files) == {"editable/small/a.py"}
