"""Test that files of a program are restored to their state at the checkpoint from which it resumes."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from kernel_backend.runner.forms.script.files import ProgramFiles


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the working folder of a program."""
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def begin(tmp_path: Path, folder: Path):
    """Provide a function that starts an attempt's file record, which continues that of earlier attempts."""

    def begins() -> ProgramFiles:
        return ProgramFiles(str(folder), tmp_path / "job" / "files.json", (str(tmp_path / "job"),))

    return begins


def write(path: Path, mode: str, text: str) -> None:
    with path.open(mode) as file:
        file.write(text)


def test_a_row_is_there_once_that_was_first_appended_after_the_checkpoint(begin, folder):
    table = folder / "metrics.csv"
    files = begin()
    with files.throughout(vars(builtins)):
        write(table, "w", "epoch,loss\n")
        state = files.state()
        write(table, "a", "0,0.5\n")  # and it is killed
    files = begin()
    files.replay()
    with files.throughout(vars(builtins)):
        write(table, "w", "epoch,loss\n")
        files.resume(state)
        assert table.read_text() == "epoch,loss\n"
        write(table, "a", "0,0.5\n")
    assert table.read_text() == "epoch,loss\n0,0.5\n"


def test_lines_of_others_stay_in_a_file_to_which_the_program_has_not_appended_since(begin, folder):
    history = folder / "history.txt"
    files = begin()
    with files.throughout(vars(builtins)):
        write(history, "a", "begun\n")
        first = files.state()
        write(history, "a", "half\n")
        second = files.state()
    with history.open("a") as file:
        file.write("another job\n")
    files = begin()
    files.replay()
    with files.throughout(vars(builtins)):
        write(history, "a", "begun\n")
        files.resume(second)
        assert history.read_text() == "begun\nhalf\nanother job\n"
        third = files.state()
    files = begin()
    files.resume(third)
    assert history.read_text() == "begun\nhalf\nanother job\n"
    begin().resume(first)
    assert history.read_text() == "begun\n"


def test_a_file_that_is_written_anew_each_time_is_not_cut(begin, folder):
    best = folder / "best.txt"
    files = begin()
    with files.throughout(vars(builtins)):
        write(best, "w", "short")
        state = files.state()
        write(best, "w", "a longer one")
    files = begin()
    files.replay()
    with files.throughout(vars(builtins)):
        write(best, "w", "short")
        files.resume(state)
    assert best.read_text() == "a longer one"
