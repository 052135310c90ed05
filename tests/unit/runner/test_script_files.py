"""Test that files of a program are restored to their state at the checkpoint from which it resumes."""

from __future__ import annotations

import builtins
import json
import os
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
    with files.throughout(dict(vars(builtins))):
        write(table, "w", "epoch,loss\n")
        state = files.state()
        write(table, "a", "0,0.5\n")  # and it is killed
    files = begin()
    files.replay()
    with files.throughout(dict(vars(builtins))):
        write(table, "w", "epoch,loss\n")
        files.resume(state)
        assert table.read_text() == "epoch,loss\n"
        write(table, "a", "0,0.5\n")
    assert table.read_text() == "epoch,loss\n0,0.5\n"


def test_lines_of_others_stay_in_a_file_to_which_the_program_has_not_appended_since(begin, folder):
    history = folder / "history.txt"
    files = begin()
    with files.throughout(dict(vars(builtins))):
        write(history, "a", "begun\n")
        first = files.state()
        write(history, "a", "half\n")
        second = files.state()
    with history.open("a") as file:
        file.write("another job\n")
    files = begin()
    files.replay()
    with files.throughout(dict(vars(builtins))):
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
    with files.throughout(dict(vars(builtins))):
        write(best, "w", "short")
        state = files.state()
        write(best, "w", "a longer one")
    files = begin()
    files.replay()
    with files.throughout(dict(vars(builtins))):
        write(best, "w", "short")
        files.resume(state)
    assert best.read_text() == "a longer one"


def test_folders_and_links_that_were_made_after_the_checkpoint_can_be_made_again(begin, folder):
    files = begin()
    with files.throughout(dict(vars(builtins))):
        os.mkdir("kept")
        state = files.state()
        for made in ("new", "new/deep", "shared"):
            os.mkdir(made)
            write(folder / made / "net.pt", "w", "weights")
        os.symlink("new", "latest")
        os.link("new/net.pt", "best.pt")
    (folder / "shared" / "theirs").write_text("of another")
    files = begin()
    files.replay()
    files.resume(state)
    assert sorted(path.name for path in folder.rglob("*")) == ["kept", "shared", "theirs"]


def test_the_record_has_a_line_for_each_file_and_that_of_an_earlier_version_is_read(begin, folder):
    record = begin().record
    assert record is not None
    record.parent.mkdir()
    record.write_text(json.dumps({"before": {"old": None}, "grows": {"old": 3}}) + "\n")
    files = begin()
    with files.throughout(dict(vars(builtins))):
        for number in range(20):
            write(folder / f"{number}", "a", "text")
            write(folder / f"{number}", "w", "text")
    _, *lines = record.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [[f"{number}", None, 0] for number in range(20)]
    record.write_text(f'{record.read_text()}["half')  # and it is killed
    assert {*begin().state()["sizes"]} == {"old", *map(str, range(20))}


def test_a_program_goes_on_in_the_folder_in_which_it_was(begin, folder, monkeypatch):
    files = begin()
    with files.throughout(dict(vars(builtins))):
        os.mkdir("run")
        first = files.state()
        os.chdir("run")
        second = files.state()
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    os.rmdir(folder / "gone")
    third = files.state()
    monkeypatch.chdir(folder)
    for reached in (files.passed, files.resume):
        found = []
        for state in (second, third, first):
            reached(state)
            found.append(os.path.relpath(os.getcwd(), folder))
        assert found == ["run", "run", "."]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_log_on_a_full_disk_keeps_no_checkpoint_from_being_taken(begin):
    files = begin()
    opened = {**vars(builtins)}
    with files.throughout(opened):
        log = opened["open"]("train.log", "w")
        with open("/dev/full", "w") as full:
            os.dup2(full.fileno(), log.fileno())
        log.write("0")
        assert files.state()["positions"] == {}
        os.dup2(os.open(os.devnull, os.O_WRONLY), log.fileno())
        log.close()
