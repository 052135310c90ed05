"""Open a database: configure it, migrate its schema, and translate its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.retry import RetryPolicy
from kernel_backend.store.base import StoreUnavailable

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x6461796C  # advisory lock number, the same in all processes of Daylight
_NETWORK = ("nfs", "cifs", "smb", "fuse.", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs")
_BUSY_SECONDS = 20.0
_RETRY = RetryPolicy((0.05,), limit=_BUSY_SECONDS)  # of the switch of the journal mode


class NewerDatabase(DaylightError):
    """Error: a later version of Daylight has written the database."""


def database_url(at: str | Path) -> URL:
    """Return the database URL: a Path is a SQLite file, a string any SQLAlchemy URL of SQLite or PostgreSQL."""
    if isinstance(at, Path):
        return URL.create("sqlite", database=str(at))
    try:
        url = make_url(at)
    except ArgumentError:
        raise _no_database(at) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _no_database(at: str) -> InvalidRequest:
    return InvalidRequest(
        f"{at!r} is no database for a store: use sqlite:////path/to/file or postgresql://user@host/name"
    )


def connect(url: URL) -> Engine:
    """Return an engine; with the execution option `writes`, a transaction begins with `BEGIN IMMEDIATE`.

    With the option `lazily` a power failure may lose a commit; otherwise a commit is on the disk before it returns. In
    both cases no commit is lost if the process is killed.
    """
    if url.get_backend_name() == "postgresql":
        return create_engine(url, pool_pre_ping=True, max_overflow=30)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise _no_database(url.render_as_string())
    engine = create_engine(url, max_overflow=30, connect_args={"timeout": _BUSY_SECONDS})
    journal = "DELETE" if is_network(Path(url.database), _mounts()) else "WAL"
    event.listen(engine, "connect", lambda raw, _: _configure(raw, journal))
    lazy = "NORMAL" if journal == "WAL" else "FULL"  # with another journal, a lazy commit could corrupt the file
    event.listen(engine, "begin", lambda connection: _begin(connection, lazy))
    return engine


def _configure(raw: sqlite3.Connection, journal: str) -> None:
    raw.isolation_level = None  # the driver must not begin transactions of its own: `_begin` does
    _set_journal(raw, journal)
    raw.execute("PRAGMA foreign_keys = ON")


def _set_journal(raw: sqlite3.Connection, journal: str) -> None:
    # The one statement that does not wait for another process that executes it at the same time.
    while raw.execute("PRAGMA journal_mode").fetchone()[0].upper() != journal:
        _RETRY.call(lambda: raw.execute(f"PRAGMA journal_mode = {journal}"), on=sqlite3.OperationalError)


def _begin(connection: Connection, lazy: str) -> None:
    options = connection.get_execution_options()
    if not options.get("writes", False):
        connection.exec_driver_sql("BEGIN")
        return
    # Before the transaction, within which it has no effect.
    connection.exec_driver_sql(f"PRAGMA synchronous = {lazy if options.get('lazily', False) else 'FULL'}")
    # Writers lock at once: a transaction that upgrades from reading to writing may find the lock taken, and fail.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(errors="surrogateescape")
    except OSError:
        return ""  # not Linux: treated as local


def is_network(path: Path, mounts: str) -> bool:
    """Return whether `path` is on a network file system, on which SQLite's write-ahead log does not work.

    `mounts` is the text of /proc/mounts.
    """
    best, found = "", ""
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if path.resolve().is_relative_to(point) and len(point) >= len(best):
            best, found = point, kind
    return found.startswith(_NETWORK)


def migrate(engine: Engine) -> None:
    """Migrate the schema, safely with concurrent processes; raises NewerDatabase if a later version wrote it."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    with engine.connect() as db:
        if _revision(db) == script.get_current_head():
            return
    with engine.execution_options(writes=True).begin() as db:
        if engine.dialect.name == "postgresql":
            db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        found = _revision(db)
        if found is not None and found not in {known.revision for known in script.walk_revisions()}:
            raise NewerDatabase(
                f"the database {_name(engine)} has schema {found}, this version of Daylight knows up to "
                f"{script.get_current_head()}: upgrade Daylight, or point it at another database"
            )
        config.attributes["connection"] = db
        command.upgrade(config, "head")


def _revision(db: Connection) -> str | None:
    return MigrationContext.configure(db).get_current_revision()


@contextmanager
def translated_errors(engine: Engine) -> Iterator[None]:
    """Translate database errors to StoreUnavailable, or to InvalidRequest if an invalid value caused them."""
    try:
        yield
    except (DataError, OverflowError) as error:
        raise InvalidRequest(f"a value cannot be stored: {_reason(error)}; change it and try again") from error
    except (IntegrityError, ProgrammingError):
        raise  # a bug in this package
    except (DBAPIError, PoolTimeout) as error:
        raise StoreUnavailable(
            f"the database {_name(engine)} is not available: {_reason(error)}. Nothing of this was stored: "
            "look at its disk space, permissions and server, then try again"
        ) from error


def _name(engine: Engine) -> str:
    return engine.url.database or "" if engine.dialect.name == "sqlite" else engine.url.render_as_string()


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().split("\n")[0]
