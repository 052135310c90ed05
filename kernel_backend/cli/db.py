"""Define the verb (subcommand) `db`, which copies the service's database between SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend import discovery
from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.verb import Call, Verb, argument
from kernel_backend.errors import Conflict, InvalidRequest
from kernel_backend.home import DATABASE

if TYPE_CHECKING:
    from sqlalchemy import URL


def _db(call: Call) -> Answer:
    match call.arguments.words:
        case ["copy", source, target]:
            return _copy(call, source, target)
    raise InvalidRequest(f"write {call.command} copy FROM TO, each a file or postgresql://user@host/name")


def _copy(call: Call, source: str, target: str) -> Answer:
    try:
        from kernel_backend.store.copy import copy_database
        from kernel_backend.store.url import shown
    except ImportError as error:
        raise InvalidRequest(
            f"this Python cannot open databases ({error}): use the one in which daylight[server] is installed"
        ) from None
    (begin, end), running = (_url(source), _url(target)), call.arguments.running
    with _unused(begin, running), _unused(end, False):
        copied = copy_database(begin, end, call.console.say, running=running)
    rows = [[name, f"{each.rows:,}", f"{each.digest:032x}"] for name, each in copied.items()]
    total = sum(each.rows for each in copied.values())
    done = f"{shown(end)} holds the {total:,} rows of {shown(begin)}: counts and digests are equal"
    return Answer(None, [Table(["table", "rows", "digest"], rows, ""), Text([done])])


def _url(text: str) -> URL:
    from kernel_backend.store.url import database_url

    return database_url(text if "://" in text else Path(text).expanduser().absolute())


@contextlib.contextmanager
def _unused(url: URL, running: bool) -> Iterator[None]:
    """Lock the home directory of a SQLite database during the `with` block, so that no service starts to use it.

    Raises Conflict if a service uses it already. Nothing is locked if `running` is set (copy although a service may use
    the database), or for PostgreSQL, whose database is locked by the first connection.
    """
    file = Path(url.database or "")
    if url.get_backend_name() != "sqlite" or file.name != DATABASE or not file.parent.is_dir() or running:
        yield  # a PostgreSQL database is locked by its first connection
        return
    with discovery.lock(file.parent) as ours:
        if not ours:
            address = discovery.find(file.parent)
            end = f"kill {address.pid}" if address else "wait until it has ended"
            raise Conflict(
                f"a service uses {file}: end it first ({end}), trainings go on; --running copies a source all the "
                "same, without what is stored later"
            )
        yield


DB = Verb(
    "db",
    "copy the database between SQLite and PostgreSQL",
    _db,
    (
        argument(
            "words",
            nargs="+",
            metavar="ACTION",
            help="copy FROM TO: copy all that a database holds to an empty one, each a file or a URL of PostgreSQL",
        ),
        argument("--running", action="store_true", help="copy although a service uses FROM: its state of this moment"),
    ),
    (
        "db copy ~/.local/share/jupyter/daylight/daylight.db postgresql:///daylight",
        "db copy postgresql:///daylight /mnt/backup/daylight.db --running",
    ),
    host="terminal",
)
