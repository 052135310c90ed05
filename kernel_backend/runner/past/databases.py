"""Open a program's connections to SQLite again, when another file takes the place of the one they have opened."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

_SET = ("isolation_level", "row_factory", "text_factory")


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
