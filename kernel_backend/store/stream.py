"""Read the numbered stream of messages, merged from the tables of events, reports and search log entries."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Result, Row, Select, Table, select

from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import LogEntry
from kernel_backend.model.stream import Message
from kernel_backend.store.tables import events, from_row, reports, rows_of, search_log, sequence


def last_seq(db: Connection) -> int:
    """Return the last assigned sequence number; 0 before the first."""
    number: int = db.execute(select(sequence.c.value)).scalar_one()
    return number


def read_messages(db: Connection, after: int, experiment: int | None, limit: int) -> list[Message]:
    """Return at most `limit` messages above sequence number `after`, in order."""
    # Queries may see different states of the database: messages above this number are left to the next call.
    last = last_seq(db)
    said = rows_of(Message, events)
    found = [from_row(Message, row) for row in _between(db, said, events, after, last, experiment, limit)]
    reported = rows_of(StoredReport, reports).add_columns(reports.c.experiment)
    found += map(_as_message, _between(db, reported, reports, after, last, experiment, limit))
    searched = rows_of(LogEntry, search_log).add_columns(search_log.c.seq, search_log.c.experiment, search_log.c.trial)
    found += map(_as_entry, _between(db, searched, search_log, after, last, experiment, limit))
    return sorted(found, key=lambda message: message.seq)[:limit]


def read_changes(db: Connection, after: int, limit: int) -> list[Message]:
    """Return at most `limit` messages above number `after` that contain experiments, trials or attempts, in order."""
    here = events.c
    records = rows_of(Message, events).where(here.seq > after, here.type.in_(("experiment", "trial", "attempt")))
    return [from_row(Message, row) for row in db.execute(records.order_by(here.seq).limit(limit))]


def _between(
    db: Connection, query: Select[Any], table: Table, after: int, last: int, experiment: int | None, limit: int
) -> Result[Any]:
    query = query.where(table.c.seq > after, table.c.seq <= last).order_by(table.c.seq).limit(limit)
    return db.execute(query if experiment is None else query.where(table.c.experiment == experiment))


def _as_message(row: Row[Any]) -> Message:
    report = row._asdict()
    experiment = report.pop("experiment")
    about = {"seq": row.seq, "at": row.at, "experiment": experiment, "trial": row.trial}
    return Message(**about, type="report", data=report)


def _as_entry(row: Row[Any]) -> Message:
    about = {"seq": row.seq, "at": row.at, "experiment": row.experiment, "trial": row.trial}
    return Message(**about, type="search", data={name: getattr(row, name) for name in LogEntry.model_fields})
