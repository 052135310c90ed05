"""The store in PostgreSQL: the contract, against a server of our own in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text
from store_contract import StoreContract

from kernel_backend.store.sql import SqlStore
from kernel_backend.store.tables import metadata

pytest.importorskip("psycopg", reason="psycopg is not installed")


def _programs() -> Path | None:
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb")
    return newest[-1].parent if newest else Path(found).parent if found else None


@pytest.fixture(scope="session")
def server() -> Iterator[Path]:
    """The folder of a running server's socket; the server refuses to run as root, so then it is `nobody`'s."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="daylight-postgres-") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        make = [programs / "initdb", "-D", data, "-U", "daylight", "--auth=trust", "-E", "UTF8", "--no-sync"]
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


class TestPostgresStore(StoreContract):
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
