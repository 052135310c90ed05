"""Connect to PostgreSQL: detect lost connections, lock out other services, and find out if a commit took place."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text

from kernel_backend.errors import InvalidRequest
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.url import shown

OLDEST = 12  # major version: an older one rounds the floats that it sends
_SERVICE_LOCK = 0x6461796D  # number of the advisory lock that the service of a database holds
_OUTCOME_POLL_S = 0.2
# With these, a server whose machine loses power is detected as lost within half a minute.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}
_CONNECT: dict[str, Any] = {"connect_timeout": 10, **_KEEPALIVE}
# The same from the server's side: otherwise the lock of a lost machine would be held for two hours.
_SERVER_KEEPALIVE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4"
_HOLDER = """
SELECT application_name, host(client_addr), to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS')
FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND classid = 0 AND objid = %s AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
# Messages of a server that refuses a connection permanently; the client gets no error code for them.
_PERMANENT = re.compile(
    r"password authentication failed|no password supplied|does not exist|no pg_hba\.conf entry"
    r"|authentication failed for user|certificate"
)


class DatabaseInUse(StoreUnavailable):
    """Error: another service is using the database."""


def connect_postgresql(url: URL) -> Engine:
    """Return an engine that opens any number of connections, and replaces those that the server has closed.

    Raises InvalidRequest if psycopg is not installed.
    """
    return _engine(url, max_overflow=30)


def connect_alone(url: URL) -> Engine:
    """Return an engine with a single connection, which holds the database's lock against other services.

    All writes of a service go through it, so that a service can only write while it has the lock, also after the
    connection was lost and opened again. Connecting raises DatabaseInUse while another service has the lock.
    """
    engine = _engine(url, pool_size=1, max_overflow=0)
    event.listen(engine, "connect", lambda raw, _: _take_lock(raw, url))
    return engine


def _engine(url: URL, **pool: Any) -> Engine:
    whose = {"application_name": f"daylight {socket.gethostname()[:40]} {os.getpid()}"}
    arguments = {name: value for name, value in (_CONNECT | whose).items() if name not in url.query}
    try:
        return create_engine(url, pool_pre_ping=True, connect_args=arguments, **pool)
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"{shown(url)}: this Python has no driver for PostgreSQL ({error}): pip install 'daylight[postgresql]', "
            "which brings psycopg"
        ) from None


def _take_lock(raw: Any, url: URL) -> None:
    """Take the lock of the database for a new connection; close the connection if another service has the lock."""
    (taken,) = raw.execute("SELECT pg_try_advisory_lock(%s)", (_SERVICE_LOCK,)).fetchone()
    if taken:
        raw.execute(_SERVER_KEEPALIVE)
        raw.commit()
        return
    holder = raw.execute(_HOLDER, (_SERVICE_LOCK,)).fetchone()
    raw.close()
    who = "" if holder is None else f" ({holder[0]}{f' at {holder[1]}' if holder[1] else ''}, since {holder[2]})"
    raise DatabaseInUse(
        f"the database {shown(url)} is in use by another service{who}: one database serves one service. End that one, "
        "or give this one a database of its own"
    )


def check_server(db: Connection) -> None:
    """Raise InvalidRequest if the database server is too old, or does not store Unicode."""
    name = shown(db.engine.url)
    version = int(db.execute(text("SHOW server_version_num")).scalar_one())
    if version < OLDEST * 10_000:
        raise InvalidRequest(f"{name} is on PostgreSQL {version // 10_000}: Daylight needs {OLDEST} or newer")
    encoding: str = db.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise InvalidRequest(
            f"{name} stores text as {encoding}, which lacks characters of names and logs: create it with "
            "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def is_permanent(problem: str) -> bool:
    """Return whether the server refused a connection for a reason that only the user can fix, such as a wrong password.

    `problem` is the text of the error.
    """
    return _PERMANENT.search(problem) is not None


def was_committed(db: Connection, transaction: int) -> bool:
    """Return whether a transaction was committed although its connection was lost during the commit.

    `transaction` is PostgreSQL's number of the transaction. Waits until the server has finished the transaction, or
    until the caller's own connection `db` fails.
    """
    while True:
        status: str = db.execute(text("SELECT txid_status(:id)"), {"id": transaction}).scalar_one()
        db.rollback()
        if status != "in progress":
            return status == "committed"
        time.sleep(_OUTCOME_POLL_S)
