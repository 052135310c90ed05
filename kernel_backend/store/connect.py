"""Connect to a database: open it, migrate its schema, and translate its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from kernel_backend.errors import InvalidRequest
from kernel_backend.retry import RetryPolicy
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.postgresql import check_server, connect_postgresql
from kernel_backend.store.revisions import MIGRATIONS, check_revision
from kernel_backend.store.url import shown

_MIGRATION_LOCK = 0x6461796C  # advisory lock number, the same in all processes of Daylight
_NETWORK = ("nfs", "cifs", "smb", "fuse.", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs")
_BUSY_SECONDS = 20.0
_RETRY = RetryPolicy((0.05,), limit=_BUSY_SECONDS)  # policy for switching the journal mode
_NO_PRIVILEGE = "42501"  # SQLSTATE: the user lacks a privilege in this schema


def connect(url: URL) -> Engine:
    """Return a SQLAlchemy engine for a database; a transaction that writes needs the execution option `writes`.

    In SQLite such a transaction locks the file when it begins. With the option `lazily`, a power failure may lose a
    commit; otherwise a commit is on the disk before it returns. In both cases no commit is lost if the process is
    killed.
    """
    if url.get_backend_name() == "postgresql":
        return connect_postgresql(url)
    engine = create_engine(url, max_overflow=30, connect_args={"timeout": _BUSY_SECONDS})
    journal = "DELETE" if is_network(Path(url.database or ""), _mounts()) else "WAL"
    event.listen(engine, "connect", lambda raw, _: _configure(raw, journal))
    lazy = "NORMAL" if journal == "WAL" else "FULL"  # with another journal, a lazy commit could corrupt the file
    event.listen(engine, "begin", lambda connection: _begin(connection, lazy))
    return engine


def _configure(raw: sqlite3.Connection, journal: str) -> None:
    raw.isolation_level = None  # the driver must not begin transactions of its own: `_begin` does
    _set_journal(raw, journal)
    raw.execute("PRAGMA foreign_keys = ON")


def _set_journal(raw: sqlite3.Connection, journal: str) -> None:
    # Retried, since this statement does not wait for another process that executes it at the same time.
    while raw.execute("PRAGMA journal_mode").fetchone()[0].upper() != journal:
        _RETRY.call(lambda: raw.execute(f"PRAGMA journal_mode = {journal}"), on=sqlite3.OperationalError)


def _begin(connection: Connection, lazy: str) -> None:
    options = connection.get_execution_options()
    if not options.get("writes", False):
        connection.exec_driver_sql("BEGIN")
        return
    # Set before the transaction, since it has no effect within one.
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
    """Update the database's schema to that of this version; safe if several processes do so at once.

    Raises OtherVersion if the schema is of a later version, or of one before the first release.
    """
    config, script = _scripts()
    with engine.connect() as db:
        if engine.dialect.name == "postgresql":
            check_server(db)
        if _revision(db) == script.get_current_head():
            return
    with engine.execution_options(writes=True).begin() as db:
        if engine.dialect.name == "postgresql":
            db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        _known_revision(db)
        config.attributes["connection"] = db
        command.upgrade(config, "head")


def check_schema(db: Connection) -> None:
    """Raise InvalidRequest if the database does not have this version's schema."""
    _, script = _scripts()
    found, name = _known_revision(db), shown(db.engine.url)
    if found is None:
        raise InvalidRequest(f"{name} holds no database of Daylight")
    if found != script.get_current_head():
        raise InvalidRequest(
            f"{name} has schema {found}, and this version of Daylight writes {script.get_current_head()}: start a "
            "service with that database once, which upgrades it, then try again"
        )


def _scripts() -> tuple[Config, ScriptDirectory]:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config, ScriptDirectory.from_config(config)


def _known_revision(db: Connection) -> str | None:
    found = _revision(db)
    if found is not None:
        check_revision(found, f"the database {shown(db.engine.url)}")
    return found


def _revision(db: Connection) -> str | None:
    return MigrationContext.configure(db).get_current_revision()


def product_of(db: Connection) -> str:
    """Return the product and version of a database, such as `PostgreSQL 15.6`."""
    if db.dialect.name == "postgresql":
        version: str = db.execute(text("SHOW server_version")).scalar_one()
        return f"PostgreSQL {version.split()[0]}"  # the rest names the distribution
    return f"SQLite {sqlite3.sqlite_version}"


@contextmanager
def translated_errors(engine: Engine) -> Iterator[None]:
    """Translate database errors to StoreUnavailable, or to InvalidRequest if an invalid value caused them."""
    try:
        yield
    except (DataError, OverflowError) as error:
        raise InvalidRequest(f"a value cannot be stored: {reason_of(error)}; change it and try again") from error
    except ProgrammingError as error:
        if error.statement is None:  # no statement: the URL has a parameter that libpq does not know
            raise InvalidRequest(f"the database {shown(engine.url)} cannot be opened: {reason_of(error)}") from None
        if getattr(error.orig, "sqlstate", "") != _NO_PRIVILEGE:
            raise  # a bug in this package
        raise StoreUnavailable(
            f"the database {shown(engine.url)} refuses its user: {reason_of(error)}. Make that user the owner: "
            f"ALTER DATABASE {engine.url.database} OWNER TO {engine.url.username or '...'}"
        ) from error
    except IntegrityError:
        raise  # a bug in this package
    except (DBAPIError, PoolTimeout) as error:
        raise StoreUnavailable(
            f"the database {shown(engine.url)} is not available: {reason_of(error)}. Nothing of this was stored: "
            "look at its disk space, permissions and server, then try again"
        ) from error


def reason_of(error: Exception) -> str:
    """Return the first line of a database's error message."""
    return str(getattr(error, "orig", None) or error).strip().split("\n")[0]
