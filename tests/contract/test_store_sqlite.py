"""Test the store in a SQLite file: the contract, and faults of the file."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from outbox_contract import OutboxContract
from register_contract import RegisterContract
from sharing_contract import SharingContract
from sqlalchemy import create_engine, event, text
from store_contract import StoreContract, check_a_later_migration, draft, placed, training

from kernel_backend.errors import DaylightError, InvalidRequest, OtherVersion
from kernel_backend.model import events as e
from kernel_backend.model.ids import AttemptId
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.connect import is_network
from kernel_backend.store.sql import SqlStore
from kernel_backend.store.tables import metadata
from tests.support.empty_database import empty_database

ROOT = Path(__file__).parents[2]
NORMAL, FULL = 1, 2  # of PRAGMA synchronous


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "daylight.db"


class TestSqliteStore(OutboxContract, RegisterContract, SharingContract, StoreContract):
    @pytest.fixture
    def store(self, file: Path) -> Iterator[SqlStore]:
        store = SqlStore(empty_database(file))
        yield store
        store.close()

    @pytest.fixture
    def garbage(self) -> int:
        return 10_000


def test_what_was_stored_is_there_after_reopening(file: Path) -> None:
    first = SqlStore(file)
    attempt = placed(first)
    first.accept(attempt.id, training(1, 3), at=4.0)
    whole = first.messages(0)
    first.close()
    again = SqlStore(file)
    assert again.messages(0) == whole
    assert again.attempt(attempt.id).accepted == 3
    assert again.add_experiment(draft(), at=5.0)[0].number == 2
    assert [message.seq for message in again.messages(whole[-1].seq)] == [whole[-1].seq + 1, whole[-1].seq + 2]
    again.close()


def test_the_migrated_schema_is_the_one_in_tables(file: Path) -> None:
    SqlStore(file).close()
    with create_engine(f"sqlite:///{file}").connect() as db:
        context = MigrationContext.configure(db, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_a_later_migration_keeps_the_rows(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_a_later_migration(f"sqlite:///{file}", tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("9999", r"schema 9999, and this version of Daylight knows up to 0030: upgrade Daylight"),
        ("0027", r"schema 0027 of a development version, .* only from 0028 on: start the service of commit \w+"),
    ],
    ids=["later", "before the first release"],
)
def test_a_database_of_another_version_is_refused(file: Path, schema: str, told: str) -> None:
    SqlStore(file).close()
    with create_engine(f"sqlite:///{file}").begin() as db:
        db.execute(text("UPDATE alembic_version SET version_num = :schema"), {"schema": schema})
    with pytest.raises(OtherVersion, match=told):
        SqlStore(file)


def test_other_databases_are_refused() -> None:
    for url in ("sqlite://", "oracle://localhost/db", "no url"):
        with pytest.raises(InvalidRequest, match="is no database for a store"):
            SqlStore(url)


def _open_and_add(file: Path, together: Barrier) -> None:
    together.wait()
    store = SqlStore(file)
    for _ in range(20):
        store.add_experiment(draft(), at=1.0)
    store.close()


def test_processes_that_open_a_new_database_at_once_share_it(file: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(4)
    processes = [spawn.Process(target=_open_and_add, args=(file, together)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    store = SqlStore(file)
    assert sorted(x.number for x in store.experiments(limit=100)) == list(range(1, 81))
    assert [message.seq for message in store.messages(0)] == list(range(1, 161))
    store.close()


WRITE_UNTIL_KILLED = """
import sys
from pathlib import Path
from sharing_contract import SharingContract
from store_contract import training
from kernel_backend.model.ids import AttemptId
from kernel_backend.store.sql import SqlStore

store, key = SqlStore(Path(sys.argv[1])), AttemptId(1, 1, 1)
number = store.attempt(key).accepted
while True:
    number = store.accept(key, training(number + 1, number + 50), at=4.0)
    print(number, flush=True)
"""


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}


def test_a_killed_writer_has_stored_every_batch_that_it_acknowledged_once(file: Path) -> None:
    store = SqlStore(file)
    placed(store)
    store.close()
    chance = random.Random(0)
    for _ in range(5):
        command = [sys.executable, "-c", WRITE_UNTIL_KILLED, str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as writer:
            assert writer.stdout is not None
            acknowledged = int(writer.stdout.readline())
            time.sleep(chance.uniform(0, 0.2))
            writer.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        store = SqlStore(file)
        accepted = store.attempt(AttemptId(1, 1, 1)).accepted
        assert accepted >= acknowledged
        assert [one.step for one in store.reports(1, 1)] == list(range(1, accepted + 1))
        store.close()


def test_what_a_client_was_promised_is_on_the_disk_before_it_hears_so(file: Path) -> None:
    store, found = SqlStore(file), []
    event.listen(
        store._database.engine, "commit", lambda db: found.append(db.exec_driver_sql("PRAGMA synchronous").scalar_one())
    )
    store.add_experiment(draft(), at=1.0)
    store.advance_experiment(1, e.Paused(), at=2.0)
    store.advance_experiment(1, e.Resumed(), at=3.0)
    attempt = placed(store, number=1)
    assert found == [FULL] * 4
    store.accept(attempt.id, training(1, 5), at=4.0)  # the spool has it, until this attempt is closed
    store.advance_attempt(attempt.id, e.Ended(), at=5.0)
    assert found[4:] == [NORMAL, FULL]
    store.close()


FILL_THE_DISK = """
import json, resource, sys
from pathlib import Path
from sharing_contract import SharingContract
from store_contract import draft, placed, training
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.sql import SqlStore

store = SqlStore(Path(sys.argv[1]))
attempt = placed(store)
store.accept(attempt.id, training(1, 100), at=4.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))  # what a full disk looks like
number, message = 100, None
while message is None:
    try:
        number = store.accept(attempt.id, training(number + 1, number + 500), at=4.0)
    except StoreUnavailable as error:
        message = error.message
steps = [one.step for one in store.reports(1, 1)]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = store.accept(attempt.id, training(number + 1, number + 500), at=4.0)
later = [one.step for one in store.reports(1, 1)]
print(json.dumps({"message": message, "number": number, "steps": steps, "again": again, "later": later}))
"""


def test_a_full_disk_is_said_plainly_and_writing_goes_on_when_there_is_room(file: Path) -> None:
    command = [sys.executable, "-c", FILL_THE_DISK, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert f"the database {file} is not available" in told["message"]
    assert "look at its disk space" in told["message"]
    assert told["steps"] == list(range(1, told["number"] + 1))
    assert told["again"] == told["number"] + 500
    assert told["later"] == list(range(1, told["again"] + 1))


def test_a_database_that_another_keeps_locked_is_said_and_can_be_read_meanwhile(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_backend.store.connect._BUSY_SECONDS", 0.2)
    store = SqlStore(file)
    attempt = placed(store)
    store.accept(attempt.id, training(1, 10), at=4.0)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for write in (
        lambda: store.accept(attempt.id, training(11, 20), at=5.0),
        lambda: store.add_experiment(draft(), at=5.0),
        lambda: store.advance_experiment(1, e.Stop(), at=5.0),
    ):
        with pytest.raises(
            StoreUnavailable, match=r"daylight\.db is not available: .*locked\. Nothing of this was stored"
        ):
            write()
    assert [one.step for one in store.reports(1, 1)] == list(range(1, 11))
    other.execute("ROLLBACK")
    other.close()
    assert store.accept(attempt.id, training(11, 20), at=5.0) == 20
    assert [one.step for one in store.reports(1, 1)] == list(range(1, 21))
    assert store.experiment(1).state == "active"
    store.close()


def test_a_read_only_database_can_be_read_and_says_why_it_cannot_be_written(file: Path) -> None:
    writable = SqlStore(file)
    placed(writable)
    read_only = SqlStore(f"sqlite:///file:{file}?mode=ro&uri=true")
    assert read_only.trial(1, 1) == writable.trial(1, 1)
    with pytest.raises(StoreUnavailable, match=r"readonly database\. Nothing of this was stored"):
        read_only.add_experiment(draft(), at=1.0)
    assert writable.add_experiment(draft(), at=1.0)[0].number == 2
    assert read_only.experiment(2).number == 2
    read_only.close()
    writable.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(DaylightError, match=r"nowhere/daylight\.db is not available: unable to open"):
        SqlStore(tmp_path / "nowhere" / "daylight.db")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is a letter to my aunt " * 100)
    with pytest.raises(StoreUnavailable, match="file is not a database"):
        SqlStore(broken)


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/export /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk xfs rw 0 0
me@host:/data /data fuse.sshfs rw 0 0
//nas/share /nas cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/var/lib/daylight.db", False),
        ("/home/ada/daylight.db", True),
        ("/home/local disk/daylight.db", False),
        ("/homeless/daylight.db", False),
        ("/data/daylight.db", True),
        ("/nas/daylight.db", True),
    ],
)
def test_network_file_systems_are_told_from_local_ones(path: str, network: bool) -> None:
    assert is_network(Path(path), MOUNTS) is network
    assert not is_network(Path(path), "")


@pytest.mark.parametrize(("mounts", "journal"), [("", "wal"), ("server:/x / nfs4 rw 0 0\n", "delete")])
def test_the_write_ahead_log_is_used_on_local_disks_only(
    file: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, journal: str
) -> None:
    monkeypatch.setattr("kernel_backend.store.connect._mounts", lambda: mounts)
    store = SqlStore(file)
    attempt = placed(store)
    assert store.accept(attempt.id, training(1, 5), at=4.0) == 5
    store.close()
    with create_engine(f"sqlite:///{file}").connect() as db:
        assert db.execute(text("PRAGMA journal_mode")).scalar_one() == journal
