"""Test that only its owner can read a home directory, and the errors for unusable ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.cli import main
from kernel_backend.errors import HomeUnusable
from kernel_backend.home import home, make_database, make_private, sizes_of_experiments
from tests.support.disks import small_disk


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def open_home(tmp_path: Path) -> Path:
    """Provide a home directory as earlier versions created it, which every user can read."""
    folder = tmp_path / "home"
    for name in ("attempts/1.1-1", "checkpoints/1/1", "notes of its owner"):
        (folder / name).mkdir(parents=True)
    for name in ("daylight.db", "daylight.db-wal", "token", "service.log", "script.py"):
        (folder / name).touch()
        (folder / name).chmod(0o644)
    for each in (folder, *folder.iterdir()):
        if each.is_dir():
            each.chmod(0o755)
    return folder


@pytest.mark.parametrize(("group", "folder", "file"), [(False, 0o700, 0o600), (True, 0o750, 0o640)])
def test_a_home_that_others_could_read_is_closed_to_them(open_home, group, folder, file):
    (open_home / "artifacts").symlink_to(open_home / "notes of its owner")
    closed = make_private(open_home, group=group)
    assert {each.name for each in closed} == {
        "home", "attempts", "checkpoints", "daylight.db", "daylight.db-wal", "token", "service.log",
    }  # fmt: skip
    assert {mode(each) for each in closed if each.is_dir()} == {folder}
    assert {mode(each) for each in closed if each.is_file()} == {file}
    assert (mode(open_home / "script.py"), mode(open_home / "notes of its owner")) == (0o644, 0o755)
    assert make_private(open_home, group=group) == []


def test_what_lies_in_a_private_home_is_closed_without_a_word(open_home):
    open_home.chmod(0o700)
    assert make_private(open_home, group=False) == []
    assert mode(open_home / "daylight.db") == 0o600


def test_a_database_is_its_owners_from_the_first_byte_on(tmp_path):
    before = os.umask(0)
    try:
        assert mode(make_database(tmp_path)) == 0o600
    finally:
        os.umask(before)
    (tmp_path / "daylight.db").write_bytes(b"as it was")
    assert make_database(tmp_path).read_bytes() == b"as it was"


@pytest.fixture
def read_only(tmp_path):
    with small_disk(tmp_path / "disk", 2**20) as disk:
        (disk / "home").mkdir()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield disk


@pytest.mark.parametrize("name", ["home", "home/below"])
def test_a_home_that_cannot_be_written_is_told_in_a_sentence(read_only, name, monkeypatch, capsys):
    monkeypatch.setenv("DAYLIGHT_HOME", str(read_only / name))
    said = (
        f"Daylight's home {read_only / name} cannot be written (Read-only file system): make it writable for you, or "
        "set DAYLIGHT_HOME to a folder that is"
    )
    with pytest.raises(HomeUnusable) as told:
        discovery.start(home())
    assert told.value.message == said
    assert main(["list"]) == 3
    assert capsys.readouterr().err == f"daylight: {said}\n"
    done = subprocess.run([sys.executable, "-m", "kernel_backend"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"daylight: {said}\n")


def test_the_doctor_names_a_home_that_cannot_be_written(read_only, monkeypatch, capsys):
    monkeypatch.setattr("kernel_backend.cli.doctor._probe", lambda code: "none")
    for name in ("home", "home/below"):
        monkeypatch.setenv("DAYLIGHT_HOME", str(read_only / name))
        assert main(["doctor"]) == 1
        assert f"{read_only / name} cannot be written" in capsys.readouterr().out


def test_a_file_that_checkpoints_share_takes_its_room_once(tmp_path):
    for name in ("1-1", "2-1"):
        (tmp_path / "checkpoints" / "3" / "1" / name).mkdir(parents=True)
    shared = tmp_path / "checkpoints" / "3" / "1" / "1-1" / "model.frozen.safetensors"
    shared.write_bytes(b"x" * 100)
    (tmp_path / "checkpoints" / "3" / "1" / "2-1" / shared.name).hardlink_to(shared)
    (tmp_path / "checkpoints" / "3" / "1" / "2-1" / "manifest.json").write_bytes(b"{}")
    assert sizes_of_experiments({"checkpoints": tmp_path / "checkpoints"}) == {3: {"checkpoints": 102}}


def test_a_relative_home_stays_the_same_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAYLIGHT_HOME", "home")
    first = home()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert home() == first == tmp_path / "home"
