"""Run a real PostgreSQL server in a temporary folder, which tests can kill and restart."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text

from kernel_backend.store.sql import SqlStore
from tests.support.world import until

_names = itertools.count(1)


class PostgresServer:
    """Server that listens on a socket in `folder`.

    PostgreSQL refuses to run as root, so that it then runs as `nobody`.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder, self._programs = folder, programs
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._migrated: str | None = None  # the database that `create_migrated` copies
        # Whatever language this machine speaks.
        self._run("initdb", "-U", "daylight", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c fsync=off"
        self._run("pg_ctl", "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self) -> None:
        """Stop the server at once, like a crash, if it runs."""
        if (self.folder / "data/postmaster.pid").exists():
            self._run("pg_ctl", "-m", "immediate", "stop")

    def kill(self) -> None:
        """Kill the server and all of its processes by SIGKILL."""
        postmaster = psutil.Process(int((self.folder / "data/postmaster.pid").read_text().split()[0]))
        everything = [postmaster, *postmaster.children(recursive=True)]
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not any(map(_lives, everything)), "the server is gone")
        # They name a process that may stay a zombie, which the next server would take for a living one.
        (self.folder / "data/postmaster.pid").unlink()
        (self.folder / ".s.PGSQL.5432.lock").unlink()

    def create(self, options: str = "") -> str:
        """Create a database and return its URL."""
        name = f"daylight_{next(_names)}"
        self.execute("postgres", f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def create_migrated(self) -> str:
        """Create a database of this version's schema, copied from one that is migrated once, and return its URL."""
        if self._migrated is None:
            url = self.create()
            SqlStore(url).close()
            self._migrated = database_name(url)
        return self.create(f"TEMPLATE {self._migrated}")

    def url(self, database: str, user: str = "daylight") -> str:
        """The address of a database."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, database: str, statement: str) -> list[tuple[object, ...]]:
        """Execute a statement as the server's owner, outside of a transaction, and return its rows."""
        url = self.url(database).replace("postgresql:", "postgresql+psycopg:")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as db:
                result = db.execute(text(statement))
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._programs / program, "-D", self.folder / "data", *arguments]
        subprocess.run(command, check=True, user=self._user, cwd=self.folder, capture_output=True)


def database_name(url: str) -> str:
    """Return the name of the database in a URL of `PostgresServer`."""
    return url.partition("?")[0].rpartition("/")[2]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _programs() -> Path | None:
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb")
    return newest[-1].parent if newest else Path(found).parent if found else None


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Provide a running server; skip the test if PostgreSQL is not installed."""
    programs = _programs()
    if programs is None:
        assert not os.environ.get("CI"), "PostgreSQL is missing: .ci/run installs it"
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="daylight-postgres-") as name:
        server = PostgresServer(programs, Path(name))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Provide a server that all tests share, and that they must leave running."""
    with postgres_server() as server:
        yield server
