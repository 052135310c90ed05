"""The numbered stream: events and reports, merged."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, Table, select

from kernel_backend.model.reports import StoredReport
from kernel_backend.model.stream import Message
from kernel_backend.store.tables import events, from_row, reports, sequence


def last_seq(db: Connection) -> int:
    """The newest number that was given; 0 before the first."""
    number: int = db.execute(select(sequence.c.value)).scalar_one()
    return number


def read_messages(db: Connection, after: int, experiment: int | None, limit: int) -> list[Message]:
    """At most `limit` messages above `after`, in order."""
    # Two reads may be two pictures: what is written between them has to wait for the next call.
    last = last_seq(db)
    found = [
        from_row(Message, row) for row in db.execute(_between(events, after, last, experiment).limit(limit)).mappings()
    ]
    for row in db.execute(_between(reports, after, last, experiment).limit(limit)).mappings():
        report = from_row(StoredReport, row)
        found.append(
            Message(
                seq=report.seq,
                at=report.at,
                experiment=row["experiment"],
                trial=report.trial,
                type="report",
                data=report.to_json(),
            )
        )
    return sorted(found, key=lambda message: message.seq)[:limit]


def _between(table: Table, after: int, last: int, experiment: int | None) -> Select[Any]:
    query = select(table).where(table.c.seq > after, table.c.seq <= last).order_by(table.c.seq)
    return query if experiment is None else query.where(table.c.experiment == experiment)
