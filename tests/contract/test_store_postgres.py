"""The store in PostgreSQL: the contract, against a server of our own in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sharing_contract import SharingContract
from sqlalchemy import create_engine, text
from store_contract import StoreContract, check_bests_of_before, draft, placed, training

from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.sql import SqlStore
from kernel_backend.store.tables import metadata
from tests.support.world import until


def _programs() -> Path | None:
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb")
    return newest[-1].parent if newest else Path(found).parent if found else None


@pytest.fixture(scope="session")
def server() -> Iterator[Path]:
    """The folder of a running server's socket; the server refuses to run as root, so then it is `nobody`'s."""
    programs = _programs()
    if programs is None:
        assert not os.environ.get("CI"), "PostgreSQL is missing: .ci/run installs it"
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="daylight-postgres-") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        make = [programs / "initdb", "-D", data, "-U", "daylight", "--auth=trust", "-E", "UTF8"]
        make += ["--no-locale", "--no-sync"]  # whatever language this machine speaks
        subprocess.run(make, check=True, user=user, cwd=folder, capture_output=True)
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        control = [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
        subprocess.run([*control, "-o", options, "start"], check=True, user=user, cwd=folder, capture_output=True)
        try:
            yield folder
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, user=user, cwd=folder, capture_output=True)


@pytest.fixture
def url(server: Path, request: pytest.FixtureRequest) -> str:
    """A fresh database's address."""
    name = f"db{abs(hash(request.node.nodeid))}"
    admin = create_engine(f"postgresql+psycopg://daylight@/postgres?host={server}", isolation_level="AUTOCOMMIT")
    with admin.connect() as db:
        db.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return f"postgresql://daylight@/{name}?host={server}"


class TestPostgresStore(SharingContract, StoreContract):
    @pytest.fixture
    def store(self, url: str) -> Iterator[SqlStore]:
        store = SqlStore(url)
        yield store
        store.close()

    @pytest.fixture
    def garbage(self) -> int:
        return 2000


def test_the_migrated_schema_is_the_one_in_tables(url: str) -> None:
    SqlStore(url).close()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as db:
        context = MigrationContext.configure(db, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_trials_of_before_have_their_best(url: str) -> None:
    check_bests_of_before(url)


def test_stores_that_open_a_new_database_at_once_share_it(url: str) -> None:
    together = threading.Barrier(4)

    def open_and_add() -> None:
        together.wait()
        store = SqlStore(url)
        for _ in range(10):
            store.add_experiment(draft(), at=1.0)
        store.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(open_and_add) for _ in range(4)]:
            done.result()
    store = SqlStore(url)
    assert sorted(x.number for x in store.experiments(limit=100)) == list(range(1, 41))
    assert [message.seq for message in store.messages(0)] == list(range(1, 81))
    store.close()


def test_a_server_that_drops_its_connections_is_found_again(url: str) -> None:
    store, other = SqlStore(url), create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    attempt = placed(store)
    store.accept(attempt.id, training(1, 10), at=4.0)
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with other.connect() as db:
        db.execute(text(f"SELECT pg_terminate_backend(pid) {others}"))
    with other.connect() as db:  # they are only told to go: one that still listens would hear the next word
        left = text(f"SELECT count(*) = 0 {others}")
        until(lambda: db.execute(left).scalar_one(), "the connections are gone")
    assert store.accept(attempt.id, training(11, 20), at=4.0) == 20
    assert [one.step for one in store.reports(1, 1)] == list(range(1, 21))
    other.dispose()
    store.close()


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"//ada:\*\*\*@/db.* is not available"):
        SqlStore(f"postgresql://ada:secret@/db?host={tmp_path}")
