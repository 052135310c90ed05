"""Copy the database of a home directory to a file while a service uses it, and restore such a copy.

Standard library only. Snapshots, checkpoints, artifacts and logs are plain files, and are not included.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kernel_backend import discovery
from kernel_backend.durable import sync_folder
from kernel_backend.errors import Conflict, InvalidRequest, NotFound
from kernel_backend.home import DATABASE, database_server, largest_number
from kernel_backend.store.revisions import check_revision

_BUSY_S = 20.0


class Contents(NamedTuple):
    """What a database contains: the number of its experiments, and the highest experiment number (0 without any)."""

    experiments: int
    newest: int


class Restored(NamedTuple):
    """Result of a restore: contents of the new database, path of the old one, and the next experiment number."""

    contents: Contents
    before: Path | None
    next_number: int


def back_up(home: Path, to: Path, *, force: bool = False) -> Contents:
    """Copy the database of a home directory to the file `to`, verify the copy, and return what it contains.

    A service may keep writing meanwhile. Raises NotFound if there is no database. Raises InvalidRequest if the database
    is on a server, or if the file `to` exists (without `force`), is the database itself, or cannot be written.
    """
    database = home / DATABASE
    if server := database_server(home):
        raise InvalidRequest(
            f"the database of {home} is {server}: back it up with pg_dump, or to a file with "
            f"daylight db copy '{server}' {to} --running"
        )
    if not database.is_file():
        raise NotFound(f"there is no database in {home}: nothing was submitted there yet")
    if to.exists() and to.samefile(database):
        raise InvalidRequest(f"{to} is the database itself: name another file")
    if to.exists() and not force:
        raise InvalidRequest(f"{to} exists: name another file, or replace it with --force")
    try:
        with _copied(database, to.absolute()) as (copy, contents):
            os.replace(copy, to)
            sync_folder(to.absolute().parent)
    except (OSError, sqlite3.Error) as error:
        raise InvalidRequest(f"{database} cannot be copied to {to}: {error}") from None
    return contents


def restore(home: Path, file: Path) -> Restored:
    """Replace the database of a home directory by a copy that `back_up` made; the old one is kept next to it.

    Raises NotFound if the file does not exist, and Conflict if a service is running. Raises InvalidRequest if the file
    is no database that this version can use, or if the home directory's database is on a server.
    """
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    if server := database_server(home):
        raise InvalidRequest(
            f"the database of {home} is {server}: restore it with pg_restore, or copy the file to an empty database "
            f"with daylight db copy {file} URL"
        )
    _check(file)
    with discovery.lock(home) as ours:
        if not ours:
            running = discovery.find(home)
            end = f"kill {running.pid}" if running else "wait until it has ended"
            raise Conflict(f"a service uses the database of {home}: end it first ({end}); running trainings go on")
        try:
            with _copied(file.absolute(), home / DATABASE) as (copy, contents):
                before = _put_away(home / DATABASE)
                os.replace(copy, home / DATABASE)
                sync_folder(home)
        except (OSError, sqlite3.Error) as error:
            raise InvalidRequest(f"{file} cannot be copied to {home / DATABASE}: {error}") from None
    return Restored(contents, before, 1 + max(contents.newest, largest_number(home)))


@contextlib.contextmanager
def _copied(database: Path, to: Path) -> Iterator[tuple[Path, Contents]]:
    """Yield the path of a verified, durable copy of a database, next to `to`, and what it contains.

    The copy is deleted afterwards unless it was renamed.
    """
    descriptor, name = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name}-")  # readable by its owner alone
    os.close(descriptor)
    copy = Path(name)
    try:
        with _opened(database, "rw") as source, _opened(copy, "rw") as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # otherwise it would consist of three files
            _verify(target, database)
            contents = _contents(target)
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        yield copy, contents
    finally:
        copy.unlink(missing_ok=True)


def _check(file: Path) -> None:
    try:
        with _opened(file, "ro") as database:
            _verify(database, file)
            _contents(database)
            (schema,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise InvalidRequest(f"{file} is no backup of Daylight's database: {error}") from None
    check_revision(schema, file)


def _verify(database: sqlite3.Connection, file: Path) -> None:
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise InvalidRequest(f"{file} is damaged: {found}")


def _contents(database: sqlite3.Connection) -> Contents:
    return Contents(*database.execute("SELECT count(*), coalesce(max(number), 0) FROM experiments").fetchone())


def _put_away(database: Path) -> Path | None:
    """Keep a database that is about to be replaced, damaged or not, under a name with the date, as a hard link.

    Returns the path with the date, or None if there is no database. The database must not be in use.
    """
    if not database.exists():
        return None
    away = _free(database.with_name(f"{database.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))
    with contextlib.suppress(sqlite3.Error), _opened(database, "rw") as whole:
        whole.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("-wal", "-shm"):  # a leftover log would be applied to the next database
        with contextlib.suppress(FileNotFoundError):
            database.with_name(database.name + suffix).rename(away.with_name(away.name + suffix))
    os.link(database, away)
    return away


def _free(path: Path) -> Path:
    others = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return path if not path.exists() else next(other for other in others if not other.exists())


@contextlib.contextmanager
def _opened(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_S)
    try:
        yield connection
    finally:
        connection.close()
