"""Follow a program's databases of SQLite, and connect it again when another file takes the place of an open one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite writes next to a database
_SET = ("isolation_level", "row_factory", "text_factory")

Version = tuple[tuple[int, int], ...]


def file_of(database: Any) -> str:
    """Return the path of the file that `sqlite3.connect(database)` may write; "" for none, as of one in memory.

    Examples
    --------
    >>> file_of("runs.db"), file_of("file:runs%201.db?cache=shared"), file_of(":memory:"), file_of("file:a.db?mode=ro")
    ('runs.db', 'runs 1.db', '', '')
    """
    path = os.fsdecode(database)
    if path.startswith("file:"):
        path, _, options = path[5:].partition("?")
        path = "" if {"mode=ro", "mode=memory", "immutable=1"} & {*options.split("&")} else unquote(path)
    return "" if path == ":memory:" else path


def version(database: str) -> Version:
    """Return the size and time of change of a database and of its log; empty if there is none."""
    found = []
    for path in (database, f"{database}-wal"):
        with contextlib.suppress(OSError):
            known = os.stat(path)
            found.append((known.st_size, known.st_mtime_ns))
    return tuple(found)


class Databases:
    """Connections that Python's `sqlite3.connect` makes from `follow` on."""

    def __init__(self) -> None:
        self._made: list[tuple[sqlite3.Connection, tuple[Any, ...], dict[str, Any]]] = []
        self._set: list[dict[str, Any]] = []
        self._follows = False

    def follow(self) -> None:
        """Follow the connections that are made from now on."""
        real: Callable[..., sqlite3.Connection] = sqlite3.connect

        def connect(*args: Any, **named: Any) -> sqlite3.Connection:
            made = real(*args, **named)
            if self._follows:
                self._made.append((made, args, {name: each for name, each in named.items() if name != "factory"}))
            return made

        self._follows = True
        sqlite3.connect = sqlite3.dbapi2.connect = connect  # type: ignore[assignment]

    def closed(self) -> Databases:
        """Close the connections, before their files are exchanged, and follow no more; return self."""
        self._follows = False
        open_now = []
        for made, args, named in self._made:
            with contextlib.suppress(sqlite3.Error):  # the program has closed it, or it is another thread's
                made.total_changes  # noqa: B018
                self._set.append({name: getattr(made, name) for name in _SET})
                open_now.append((made, args, named))
                made.close()
        self._made = open_now
        return self

    def open(self) -> None:
        """Open each connection again: the same object, now with the file that is there."""
        for (made, args, named), settings in zip(self._made, self._set, strict=True):
            with contextlib.suppress(sqlite3.Error, TypeError):
                made.__init__(*args, **named)  # type: ignore[misc]
                for name, value in settings.items():
                    setattr(made, name, value)
        self._made.clear()
        self._set.clear()
