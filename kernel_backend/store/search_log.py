"""Store the logs of searches: numbered without gaps, and fast to read, as a restart replays all entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Select, Text, func, insert, select, type_coerce

from kernel_backend.errors import Conflict
from kernel_backend.model.search.records import LogEntry
from kernel_backend.store.tables import search_log, to_row
from kernel_backend.store.transaction import Transaction

_PAGE = 1000  # entries decoded at once: fastest, and other threads get to run in between
_ENTRIES = TypeAdapter(list[LogEntry])
_here = search_log.c
_LINES: Select[Any] = select(
    _here.number, _here.at, type_coerce(_here.event, Text), type_coerce(_here.decision, Text)
).order_by(_here.number)


def append(tx: Transaction, number: int, entries: Sequence[LogEntry]) -> None:
    """Append entries to the log of experiment `number`'s search, and publish them; raises Conflict for a gap."""
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


def read_log(db: Connection, number: int, after: int, limit: int | None) -> list[LogEntry]:
    """Return at most `limit` entries of a search's log above number `after`, in order."""
    rows = db.execute(_LINES.where(_here.experiment == number, _here.number > after).limit(limit))
    return [entry for page in rows.partitions(_PAGE) for entry in _decoded(page)]


def _decoded(page: Sequence[Any]) -> list[LogEntry]:
    lines = ",".join(
        f'{{"number":{number},"at":{at!r},"event":{event},"decision":{decision or "null"}}}'
        for number, at, event, decision in page
    )
    return _ENTRIES.validate_json(f"[{lines}]")
