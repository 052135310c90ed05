"""Test that each file written by loss, metrics or a step has one writer, and that ranks read what they wrote."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernel_backend.runner.definition.step_files import StepFiles, caches_of, is_result, tells_ranks_apart


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Provide the working folder; the temporary folder is elsewhere."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def files(folder):
    """Provide a function `files(rank, ...)` that returns the redirection of one of two ranks."""

    def make(rank, size=2, **options):
        return StepFiles(str(folder), folder.parent / f"rank-{rank}", rank, notes.append, size, **options)

    notes: list[str] = []
    make.notes = notes
    return make


def appends(text):
    with open("log.csv", "a") as file:
        file.write(text)
    return Path("log.csv").read_text()


def test_appended_lines_are_there_once(files, folder):
    (folder / "log.csv").write_text("head\n")
    ranks = [files(rank).inside(appends) for rank in (1, 0)]  # what is there already is copied when rank 1 appends
    for step in range(3):
        seen = [rank(f"{step}\n") for rank in ranks]
        assert seen[0] == seen[1] == (folder / "log.csv").read_text()
    assert (folder / "log.csv").read_text() == "head\n0\n1\n2\n"


def saves_all():
    torch.save(torch.ones(2), "net.pt")
    torch.save(obj=torch.ones(2), f=Path("other.pt"))
    save_file({"w": torch.ones(2)}, "net.safetensors")
    np.save("array.npy", np.ones(2))
    Path("text").write_text("a")
    with io.open("bytes", "xb") as file:  # noqa: UP020
        file.write(b"a")
    shutil.copy2("text", "copy")
    torch.save(torch.ones(2), "best.tmp")
    os.replace("best.tmp", "best.pt")
    assert torch.load("best.pt").sum() == torch.load("other.pt").sum() == 2 == load_file_of_open("net.safetensors")
    assert np.load("array.npy").sum() == 2
    assert Path("copy").read_text() == "a"
    assert os.path.getsize("copy") == 1
    assert os.path.exists("text")
    assert not os.path.exists("best.tmp")
    os.remove("text")
    assert not os.path.exists("text")


def load_file_of_open(path):
    with open(path, "rb") as file:
        return 2 if b"F32" in file.read(200) else 0


def test_rank_1_leaves_nothing_and_finds_all(files, folder):
    other = files(1)
    other.inside(saves_all)()
    assert other.inside(torch.load)("best.pt").sum() == 2  # in a later call, too
    other.close()
    assert os.listdir(folder) == []
    assert not (folder.parent / "rank-1").exists()


def test_rank_0_writes_as_ever_and_is_told_once(files, folder):
    files(0).inside(saves_all)()
    wanted = ["array.npy", "best.pt", "bytes", "copy", "net.pt", "net.safetensors", "other.pt"]
    assert sorted(os.listdir(folder)) == wanted
    assert load_file("net.safetensors")["w"].sum() == 2
    assert len(files.notes) == 1
    assert files.notes[0].startswith("net.pt is written by rank 0 of 2 alone: ")


def test_other_files_are_opened_as_they_are(files, folder):
    (folder / "data.txt").write_text("data")
    os.mkdir(".cache")

    def step():
        with open(os.open("data.txt", os.O_RDONLY)) as file:
            assert file.read() == "data"
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
            file.write("x")
        with tempfile.TemporaryDirectory() as scratch:
            Path(scratch, "x").write_text("x")
            assert os.listdir(scratch) == ["x"]
        Path(".cache/x").write_text("x")
        Path("/dev/null").write_text("x")
        torch.save(1, io.BytesIO())
        thread = threading.Thread(target=lambda: Path("checkpoint").write_text("x"))
        thread.start()
        thread.join()
        return file.name

    named = files(1).inside(step)()
    assert sorted(os.listdir(folder)) == sorted([".cache", "checkpoint", "data.txt", os.path.basename(named)])
    assert os.listdir(".cache") == ["x"]


@pytest.mark.parametrize(("path", "mode"), [("no/such/folder", "w"), ("missing", "r+"), ("missing", "r")])
def test_errors_are_those_of_the_path(files, path, mode):
    with pytest.raises(FileNotFoundError, match=path):
        files(1).inside(lambda: open(path, mode))()  # noqa: SIM115 - it fails


def test_nothing_stays_patched(files):
    before = builtins.open, io.open, torch.save, os.stat, os.replace
    with pytest.raises(ZeroDivisionError):
        files(1).inside(fails)()
    assert (builtins.open, io.open, torch.save, os.stat, os.replace) == before


def fails():
    Path("x").write_text("x")
    raise ZeroDivisionError


def test_calls_beside_the_training_leave_nothing(files, folder):
    alone = files(0, size=1)
    assert alone.inside(appends) is appends
    appends("1\n")
    with alone.aside():
        assert appends("2\n") == "1\n2\n"
    assert (folder / "log.csv").read_text() == "1\n"
    assert files.notes == []
    first = files(0)
    with first.aside():
        assert first.inside(appends)("3\n") == "1\n3\n"
    assert first.inside(appends)("4\n") == "1\n4\n"
    assert not (folder.parent / "rank-0").exists()


def test_code_that_names_its_rank_is_left_alone(files):
    assert files(1, apart=True).inside(appends) is appends


@pytest.mark.parametrize(
    ("source", "apart"),
    [
        ("def metrics(output, rank): ...", True),
        ("if torch.distributed.get_rank() == 0: ...", True),
        ("from os import getpid", True),
        ("os.environ['LOCAL_RANK']", True),
        ("# the rank of a matrix\ntorch.linalg.matrix_rank(x); print('hello world')", False),
        ("print 'of Python 2'", False),
    ],
)
def test_a_rank_is_found_by_name(source, apart):
    assert tells_ranks_apart(source.encode()) == apart


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("/home/ada/project/log.csv", True),
        ("/results/log.csv", True),
        ("/home/ada/project/.ipynb_checkpoints/x", False),
        ("/home/a/.cache/hub/x", False),
        ("/models/x", False),
        ("/dev/shm/x", False),
    ],
)
def test_what_is_a_result(path, result):
    caches = caches_of({"HF_HOME": "/models", "HOME": "/home/a", "TORCH_HOME": "relative", "A_HOME": "/"})
    assert is_result(path, "/home/ada/project", caches) == result


def test_a_working_folder_may_be_hidden_or_in_a_cache():
    assert is_result("/home/a/.local/share/x/log", "/home/a/.local/share/x", ["/home/a/.local"])


def test_a_whole_program_makes_and_deletes_on_other_ranks_what_is_its_own(files, folder):
    (folder / "old.pt").write_text("of rank 0")
    held = {"open": open}
    (folder / "job").mkdir()
    with files(1).throughout(held, str(folder / "job")):
        (folder / "job" / "part").write_text("of the job")
        os.makedirs("runs/new", exist_ok=True)
        os.mkdir("runs/again")
        with held["open"]("runs/new/a.txt", "w") as file:
            file.write("mine")
        assert Path("runs/new/a.txt").read_text() == "mine"
        os.remove("runs/new/a.txt")
        os.remove("old.pt")
        assert not os.path.exists("runs/new/a.txt")
        assert not os.path.exists("old.pt")
        shutil.rmtree("runs/again")
        os.mkdir("runs/again")
    assert held["open"] is open
    assert sorted(each.name for each in folder.rglob("*")) == ["job", "old.pt", "part"]
    assert (folder / "old.pt").read_text() == "of rank 0"
