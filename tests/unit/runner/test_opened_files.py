"""Test the audit hook that records opened files, and that it never disturbs its caller."""

from __future__ import annotations

import io
import os
import sqlite3
import threading
from pathlib import Path

import pytest
import torch

import daylight
import jupyter_ext
from kernel_backend.data import observed as observing
from kernel_backend.data.observed import is_data, observed
from kernel_backend.runner import opened_files


@pytest.fixture
def heard(tmp_path, monkeypatch):
    """Return the names below `tmp_path` of the recorded files."""
    monkeypatch.setattr(opened_files, "_temporary", str(tmp_path / "scratch") + "/")
    (tmp_path / "scratch").mkdir()
    opened_files.watch(lambda path: path.startswith(str(tmp_path)))
    yield lambda: [os.path.relpath(path, tmp_path) for path in opened_files.all_opened()]
    opened_files.stop()


def test_reading_is_heard_however_a_file_is_named(heard, tmp_path, monkeypatch):
    names = ["text", b"bytes", Path("path"), "../" + tmp_path.name + "/around"]
    monkeypatch.chdir(tmp_path)
    for name in names:
        Path(os.fsdecode(name)).touch()
        with open(name) as file, open(file.fileno(), closefd=False):
            pass
    os.close(os.open("low", os.O_CREAT | os.O_WRONLY))
    os.close(os.open("low", os.O_RDONLY))
    with open("text", "r+"):
        pass
    sqlite3.connect("base.db").close()
    assert heard() == ["around", "base.db", "bytes", "low", "path", "text"]


def test_writing_alone_is_not(heard, tmp_path):
    for mode in ("w", "a", "x", "w+"):
        open(tmp_path / f"made{mode}", mode).close()
    torch.save(1, tmp_path / "net.pt")
    (tmp_path / "scratch" / "x").touch()
    torch.save(1, io.BytesIO())
    assert heard() == []
    made = [str(tmp_path / name) for name in ("madew", "madea", "madex", "madew+", "net.pt")]
    assert opened_files.made() == made
    assert opened_files.made() == []


def test_a_temporary_file_that_was_made_here_is_none_and_a_download_is_one(heard, tmp_path):
    for path in (tmp_path / "scratch" / "x", tmp_path / "download"):
        path.write_text("x")
        path.read_text()
    assert heard() == ["download"]


def test_what_cannot_be_opened_or_named_stops_nobody(heard, tmp_path):
    with pytest.raises(FileNotFoundError):
        (tmp_path / "gone").read_text()
    with pytest.raises(ValueError, match="null"):
        Path(f"{tmp_path}/a\0b").read_text()
    name = os.fsencode(tmp_path) + b"/na\xefve"
    with open(name, "w"), open(name):
        pass
    assert observed([str(tmp_path / "gone"), f"{tmp_path}/a\0b", str(tmp_path)], tmp_path).files == ()
    assert "na\udcefve" not in heard()


def test_each_is_new_once(heard, tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "a").read_bytes()
    assert opened_files.heard() == [str(tmp_path / "a")]
    (tmp_path / "a").read_bytes()
    opened_files.add([str(tmp_path / "a"), "/elsewhere"])
    assert opened_files.heard() == ["/elsewhere"]
    opened_files.stop()
    opened_files.add(["/late"])
    (tmp_path / "a").read_bytes()
    assert opened_files.heard() == heard() == []


def test_only_so_many_are_remembered(heard, tmp_path, monkeypatch):
    monkeypatch.setattr(opened_files, "MOST", 3)
    for number in range(9):
        (tmp_path / str(number)).touch()
        (tmp_path / str(number)).read_bytes()
    assert heard() == ["0", "1", "2"]


def test_many_threads_are_heard(heard, tmp_path):
    def read(first: int) -> None:
        for number in range(first, first + 50):
            (tmp_path / str(number)).write_text("x")
            (tmp_path / str(number)).read_text()

    threads = [threading.Thread(target=read, args=(50 * each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(heard()) == len(opened_files.heard()) == 400


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/home/ada/data/x.csv", True),
        ("/home/ada/helpers.py", True),
        ("/home/ada/.cache/huggingface/model.safetensors", True),
        ("/home/ada/code/definition.py", False),
        ("/home/ada/codex/x.csv", True),
        ("/home/ada/x/__pycache__/a.pyc", False),
        ("/srv/venv/lib/python3.11/site-packages/numpy/core.py", False),
        (os.__file__, False),
        (opened_files.__file__, False),
        (daylight.__file__, False),
        (jupyter_ext.__file__, False),
        (os.path.join(os.path.dirname(os.path.dirname(daylight.__file__)), "data.csv"), True),
        ("/proc/meminfo", False),
        ("/etc/hosts", False),
    ],
)
def test_what_is_data_follows_from_the_path(path, counts):
    assert is_data(path, ["/home/ada/code"]) == counts


def test_large_files_have_no_digest_and_long_lists_are_cut(tmp_path, monkeypatch):
    for number in range(6):
        (tmp_path / f"{number}").write_bytes(b"x" * number)
    monkeypatch.setattr(observing, "LISTED", 5)
    monkeypatch.setattr(observing, "LARGEST", 3)
    monkeypatch.setattr(observing, "ALTOGETHER", 4)
    found = observed([str(tmp_path / str(number)) for number in range(6)], tmp_path)
    assert found.more == 1
    assert [file.size for file in found.files] == [0, 1, 2, 3, 4]
    assert [file.digest is not None for file in found.files] == [True, True, True, False, False]


def test_in_a_hurry_content_is_not_read_and_what_is_known_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_backend.data.cache.RACY_NS", -(10**12))
    (tmp_path / "a").write_text("a")
    (known,) = observed([str(tmp_path / "a")], tmp_path).files
    (tmp_path / "b").write_text("b")
    files = observed([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path, hurry=lambda: True).files
    assert [file.digest for file in files] == [known.digest, None]


def test_a_file_in_a_likeness_of_a_folder_goes_by_its_real_name(tmp_path: Path):
    likeness = tmp_path / "likeness"
    (likeness / "home").mkdir(parents=True)
    (likeness / "home" / "a").write_text("as it was")
    (known,) = observed([str(likeness / "home/a")], tmp_path, overlay=str(likeness)).files
    assert (known.path, known.size) == ("/home/a", 9)
