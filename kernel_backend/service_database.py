"""Open a service's database: choose it, wait for its server, and record the choice in the home directory."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL

from kernel_backend.discovery import write_private
from kernel_backend.errors import InvalidRequest
from kernel_backend.home import DATABASE, DATABASE_URL, database_server, make_database, writing
from kernel_backend.service.notifier import wait_for
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.postgresql import DatabaseInUse, is_permanent
from kernel_backend.store.sql import SqlStore
from kernel_backend.store.url import database_url, shown, without_secrets

VARIABLE = "DAYLIGHT_DB_URL"
PAUSE_S = 1.0  # between tries to reach the server
SAID_S = 10.0  # between log messages that the server does not answer

_log = logging.getLogger(__name__)


class ChosenDatabase(NamedTuple):
    """Database of a service, and the setting, variable or file that names it."""

    url: URL
    source: str


async def open_store(home: Path, setting: str, patience_s: float, stop: asyncio.Event) -> SqlStore | None:
    """Return the opened database of a home directory's service; None if `stop` was set while waiting for its server.

    `setting` is the configured URL, "" for none. Raises StoreUnavailable if the server does not answer, or another
    service uses the database, for `patience_s` seconds. Raises InvalidRequest for a SQLite file of another home, and
    for an empty database if the home's SQLite file has experiments.
    """
    chosen = choose(home, setting)
    if chosen is None:
        return SqlStore(make_database(home))
    if chosen.url.password and any(setting and setting in each for each in sys.argv):
        _log.warning(
            "other users of this machine can read the password in --db-url: put the URL into a file of settings "
            "(--config), or the password into ~/.pgpass"
        )
    store = await _opened(chosen, patience_s, stop)
    if store is not None:
        await asyncio.to_thread(_adopt, home, chosen, store)
    return store


def choose(home: Path, setting: str) -> ChosenDatabase | None:
    """Return the database server that a home directory's service uses, or None for its SQLite file.

    The setting `db_url` comes first, then the environment variable, then the file in the home directory. Passwords are
    removed from the environment, which processes that run users' code inherit.
    """
    given = os.environ.pop(VARIABLE, "")
    named = [(setting, "db_url"), (given, VARIABLE), (database_server(home), str(home / DATABASE_URL))]
    text, source = next((each for each in named if each[0]), ("", ""))
    if not text:
        return None
    try:
        url = database_url(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{source}: {error.message}") from None
    if url.get_backend_name() == "sqlite":
        _check_own_file(home, url, source)
        (home / DATABASE_URL).unlink(missing_ok=True)
        return None
    password = os.environ.pop("PGPASSWORD", None)
    return ChosenDatabase(url if url.password or not password else url.set(password=password), source)


def _check_own_file(home: Path, url: URL, source: str) -> None:
    if Path(url.database or "").absolute() != home / DATABASE:
        raise InvalidRequest(
            f"{source}: {url.database} is not the SQLite file of this home, {home / DATABASE}: leave db_url out, or "
            "set home (DAYLIGHT_HOME) to the folder of that file"
        )


async def _opened(chosen: ChosenDatabase, patience_s: float, stop: asyncio.Event) -> SqlStore | None:
    began, said = time.monotonic(), -SAID_S
    while not stop.is_set():
        try:
            return await asyncio.to_thread(SqlStore, chosen.url.render_as_string(hide_password=False), alone=True)
        except StoreUnavailable as error:
            waited = time.monotonic() - began
            if waited >= patience_s or is_permanent(error.message):
                raise StoreUnavailable(_gives_up(error, chosen, waited)) from None
            if time.monotonic() - said >= SAID_S:
                said = time.monotonic()
                _log.warning("%s: waiting up to %.0f s for it", _problem(error), patience_s - waited)
        await wait_for(stop, PAUSE_S)
    return None


def _gives_up(error: StoreUnavailable, chosen: ChosenDatabase, waited: float) -> str:
    if isinstance(error, DatabaseInUse):
        return error.message
    after = f" after {waited:.0f} s" if waited >= PAUSE_S else ""
    return (
        f"no service without its database{after}: {_problem(error)}. It is named by {chosen.source}; is the server up, "
        f"and does this open it: psql '{without_secrets(chosen.url)}'"
    )


def _problem(error: StoreUnavailable) -> str:
    return error.message.partition(". Nothing of this was stored")[0]


def _adopt(home: Path, chosen: ChosenDatabase, store: SqlStore) -> None:
    """Record in the home directory that its service uses the database `chosen`, which is open as `store`.

    Raises InvalidRequest if the chosen database has no experiments, but the home directory's SQLite file has some.
    """
    noted, name = database_server(home), without_secrets(chosen.url)
    if noted == name:
        return
    if not noted and (known := _experiments_in_file(home)) and not store.experiments(limit=1):
        store.close()
        raise InvalidRequest(
            f"{shown(chosen.url)} holds no experiment, and {home / DATABASE} up to #{known}: copy them first "
            f"(daylight db copy {home / DATABASE} '{name}'), or begin anew by moving {home / DATABASE} away"
        )
    if noted:
        _log.warning("this home's database was %s before, and is %s now", noted, name)
    with writing(home):
        write_private(home / DATABASE_URL, name + "\n")


def _experiments_in_file(home: Path) -> int:
    """Return the newest experiment number in a home directory's SQLite file; 0 for none."""
    if not (home / DATABASE).is_file() or not (home / DATABASE).stat().st_size:
        return 0
    store = SqlStore(home / DATABASE)
    try:
        return max((each.number for each in store.experiments(limit=1)), default=0)
    finally:
        store.close()
