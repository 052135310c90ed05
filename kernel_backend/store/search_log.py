"""Store the logs of searches, with entries numbered without gaps.

Logs are fast to read, since a restarted service replays each of them. Next to a log, the history that a reader has
computed from it is stored, so that the next reader need not read all of the log.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json
from sqlalchemy import Connection, Select, Text, delete, func, insert, select, type_coerce
from typing_extensions import override

from kernel_backend.errors import Conflict
from kernel_backend.model.search.effects import Effect
from kernel_backend.model.search.records import LogEntry, LoggedReport
from kernel_backend.model.trial import Trial
from kernel_backend.store.base import Store
from kernel_backend.store.tables import search_histories, search_log, to_row
from kernel_backend.store.transaction import Transaction

_PAGE = 1000  # entries decoded at once: fastest, and other threads get to run in between
_ENTRIES = TypeAdapter(list[LogEntry])
_here = search_log.c
_LINES: Select[Any] = select(
    _here.number, _here.at, type_coerce(_here.event, Text), type_coerce(_here.decision, Text)
).order_by(_here.number)


class SqlSearchStore(Store):
    """Part of the SQL store that stores the logs of searches."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self, *, lazily: bool = False) -> AbstractContextManager[Transaction]: ...

    @override
    def record(
        self, number: int, entries: Sequence[LogEntry], effects: Sequence[Effect] = (), *, at: float
    ) -> list[Trial]:
        with self._writing() as tx:
            _append(tx, number, entries)
            return [tx.carry_out(at, number, effect) for effect in effects]

    @override
    def search_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry]:
        with self._reading() as db:
            return _read_log(db, number, after, limit)

    @override
    def brief_log(self, number: int, after: int = 0, limit: int | None = None) -> list[LogEntry | LoggedReport]:
        with self._reading() as db:
            return _read_brief_log(db, number, after, limit)

    @override
    def search_history(self, number: int) -> bytes | None:
        with self._reading() as db:
            return _read_history(db, number)

    @override
    def keep_search_history(self, number: int, packed: bytes) -> None:
        with self._writing(lazily=True) as tx:  # it can be computed again
            _keep_history(tx.db, number, packed)


def _append(tx: Transaction, number: int, entries: Sequence[LogEntry]) -> None:
    """Append entries to the log of experiment `number`'s search, and publish them.

    Raises Conflict if their numbers do not continue the log.
    """
    newest: int = tx.db.execute(select(func.max(_here.number)).where(_here.experiment == number)).scalar_one() or 0
    if [entry.number for entry in entries] != list(range(newest + 1, newest + 1 + len(entries))):
        first = entries[0].number if entries else None
        raise Conflict(
            f"the search of experiment #{number} has gone on to entry {newest}, and entry {first} does not follow: "
            "read its log again, then decide"
        )
    rows = [to_row(entry) | {"seq": tx.next_seq(), "experiment": number, "trial": entry.trial} for entry in entries]
    if rows:
        tx.db.execute(insert(search_log), rows)


def _read_log(db: Connection, number: int, after: int, limit: int | None) -> list[LogEntry]:
    """Return at most `limit` entries of a search's log with numbers above `after`, in order."""
    rows = db.execute(_LINES.where(_here.experiment == number, _here.number > after).limit(limit))
    return [entry for page in rows.partitions(_PAGE) for entry in _decoded(page)]


def _decoded(page: Sequence[Any]) -> list[LogEntry]:
    lines = ",".join(
        f'{{"number":{number},"at":{at!r},"event":{event},"decision":{decision or "null"}}}'
        for number, at, event, decision in page
    )
    return _ENTRIES.validate_json(f"[{lines}]")


def _read_brief_log(db: Connection, number: int, after: int, limit: int | None) -> list[LogEntry | LoggedReport]:
    """Return the same entries as `_read_log`, with those about reports in a short form; five times as fast."""
    rows = db.execute(_LINES.where(_here.experiment == number, _here.number > after).limit(limit))
    targets: dict[str | None, int | None] = {None: None}  # by the text of a decision, of which there are few
    return [entry for page in rows.partitions(_PAGE) for entry in _brief(page, targets)]


def _read_history(db: Connection, number: int) -> bytes | None:
    """Return the history of a search as stored last, as bytes; None if none is stored."""
    query = select(search_histories.c.packed).where(search_histories.c.experiment == number)
    packed: bytes | None = db.execute(query).scalar_one_or_none()
    return packed


def _keep_history(db: Connection, number: int, packed: bytes) -> None:
    """Store the history of a search, as bytes, replacing the previous one."""
    db.execute(delete(search_histories).where(search_histories.c.experiment == number))
    db.execute(insert(search_histories), {"experiment": number, "packed": packed})


def _brief(page: Sequence[Any], targets: dict[str | None, int | None]) -> Iterator[LogEntry | LoggedReport]:
    events: list[Any] = from_json(f"[{','.join(row[2] for row in page)}]")  # accepts NaN and infinity, too
    for (number, at, _, decision), event in zip(page, events, strict=True):
        if event["type"] != "reported":
            decided = None if decision is None else from_json(decision)
            yield LogEntry(number=number, at=at, event=event, decision=decided)
            continue
        if decision not in targets:
            targets[decision] = from_json(decision).get("until")
        yield LoggedReport(number, at, event["trial"], event["unit"], event["value"], targets[decision])
