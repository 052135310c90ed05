"""Test that a database is copied while it is in use, and restored only while it is not."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.backup import Contents, back_up, restore
from kernel_backend.cli import main
from kernel_backend.errors import Conflict, InvalidRequest, NotFound
from kernel_backend.model.experiment import Config
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore

DRAFT = NewExperiment(
    owner="ada", group="lab", snapshot="0" * 64, config=Config(), params={"lr": 0.1}, python="python", cwd="/"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def numbers(home: Path) -> list[int]:
    store = SqlStore(home / "daylight.db")
    try:
        return sorted(each.number for each in store.experiments())
    finally:
        store.close()


def add(home: Path, count: int) -> None:
    store = SqlStore(home / "daylight.db")
    for _ in range(count):
        store.add_experiment(DRAFT, at=1.0)
    store.close()


def test_a_backup_is_one_whole_file_of_its_owner_alone(home: Path, tmp_path: Path) -> None:
    store = SqlStore(home / "daylight.db")  # and in use: all that it holds is in its log
    store.add_experiment(DRAFT, at=1.0)
    file = tmp_path / "monday.db"
    assert back_up(home, file) == Contents(1, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home", "monday.db"]
    store.add_experiment(DRAFT, at=1.0)
    store.close()
    with pytest.raises(InvalidRequest, match=r"monday\.db exists: name another file, or replace it with --force"):
        back_up(home, file)
    assert back_up(home, file, force=True) == Contents(2, 2)


def test_a_database_in_use_is_not_replaced_by_its_own_copy(home: Path, tmp_path: Path) -> None:
    store = SqlStore(home / "daylight.db")
    store.add_experiment(DRAFT, at=1.0)
    (tmp_path / "link.db").symlink_to(home / "daylight.db")
    for itself in (home / "daylight.db", tmp_path / "link.db"):
        with pytest.raises(InvalidRequest, match="is the database itself: name another file"):
            back_up(home, itself, force=True)
    store.add_experiment(DRAFT, at=1.0)
    store.close()
    assert numbers(home) == [1, 2]


def test_a_backup_that_is_made_while_experiments_are_added_has_each_of_them_or_not(home: Path, tmp_path: Path) -> None:
    store, done = SqlStore(home / "daylight.db"), threading.Event()

    def write() -> None:
        while not done.is_set():
            store.add_experiment(DRAFT, at=1.0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [back_up(home, tmp_path / f"{each}.db") for each in range(5)]
    finally:
        done.set()
        writer.join()
        store.close()
    assert all(each.experiments == each.newest for each in found)
    with sqlite3.connect(tmp_path / "4.db") as copy:
        assert copy.execute("SELECT count(*) FROM trials").fetchone() == (found[4].experiments,)


def test_what_was_restored_is_what_was_backed_up_and_what_was_there_is_kept(home: Path, tmp_path: Path) -> None:
    add(home, 2)
    back_up(home, tmp_path / "monday.db")
    add(home, 3)
    (home / "checkpoints" / "7" / "1").mkdir(parents=True)
    restored = restore(home, tmp_path / "monday.db")
    assert (restored.contents, restored.next_number) == (Contents(2, 2), 8)
    assert numbers(home) == [1, 2]
    assert stat.S_IMODE((home / "daylight.db").stat().st_mode) == 0o600
    assert restored.before is not None
    assert restore(home, restored.before).contents == Contents(5, 5)
    assert numbers(home) == [1, 2, 3, 4, 5]


def test_a_database_that_is_damaged_or_gone_is_replaced(home: Path, tmp_path: Path) -> None:
    add(home, 2)
    back_up(home, tmp_path / "monday.db")
    (home / "daylight.db").write_bytes(b"no database" * 1000)
    (home / "daylight.db-wal").write_bytes(b"and no log" * 1000)
    before = restore(home, tmp_path / "monday.db").before
    assert before is not None
    assert before.read_bytes().startswith(b"no database")
    assert numbers(home) == [1, 2]
    (home / "daylight.db").unlink()
    assert restore(home, tmp_path / "monday.db").before is None
    assert numbers(home) == [1, 2]


def test_a_database_in_use_is_not_replaced(home: Path, tmp_path: Path) -> None:
    add(home, 1)
    back_up(home, tmp_path / "monday.db")
    add(home, 1)
    with discovery.lock(home):
        discovery.announce(home, "127.0.0.1", 1)
        with pytest.raises(Conflict, match=rf"end it first \(kill {os.getpid()}\); running trainings go on"):
            restore(home, tmp_path / "monday.db")
    assert numbers(home) == [1, 2]


def test_what_is_no_backup_is_refused_and_nothing_is_changed(home: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no database in"):
        back_up(home, tmp_path / "monday.db")
    add(home, 1)
    with pytest.raises(NotFound, match="there is no file"):
        restore(home, tmp_path / "nothing.db")
    (tmp_path / "letter.db").write_bytes(b"dear aunt" * 1000)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE cats (name)").connection.close()
    for name in ("letter.db", "other.db"):
        with pytest.raises(InvalidRequest, match=rf"{name} is no backup of Daylight's database"):
            restore(home, tmp_path / name)
    back_up(home, tmp_path / "monday.db")
    whole = (tmp_path / "monday.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidRequest, match=r"torn\.db"):
        restore(home, tmp_path / "torn.db")
    for schema, told in (("9999", "and this version of Daylight knows up to"), ("0027", "of a development version")):
        with sqlite3.connect(tmp_path / "monday.db") as other:
            other.execute("UPDATE alembic_version SET version_num = ?", [schema])
        with pytest.raises(InvalidRequest, match=f"has schema {schema},? {told}"):
            restore(home, tmp_path / "monday.db")
    assert numbers(home) == [1]
    assert [each.name for each in home.iterdir() if "before" in each.name or each.name.startswith(".")] == []


def test_both_are_verbs(home: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("DAYLIGHT_HOME", str(home))
    file = tmp_path / "monday.db"
    assert main(["backup", str(file)]) == 2
    assert "nothing was submitted there yet" in capsys.readouterr().err
    add(home, 2)
    assert main(["backup", str(file)]) == 0
    assert f"{file}: 2 experiments, up to #2, as of" in capsys.readouterr().out
    add(home, 1)
    assert main(["restore", str(file)]) == 0
    said = capsys.readouterr()
    assert f"the database of {home} is that of {file}: 2 experiments, up to #2" in said.out
    assert "new experiments are numbered from #3 on" in said.err
    assert numbers(home) == [1, 2]
