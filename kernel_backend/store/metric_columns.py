"""Read a trial's reports as columns, because creating a record for each of 100,000 reports would take seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Row, Text, select, type_coerce

from kernel_backend.model.views.curves import ReportedValues, gather, join
from kernel_backend.store.tables import reports

_PAGE = 500  # reports decoded at once: fastest, and other threads get to run in between

_TELLING = select(
    reports.c.seq, reports.c.kind, reports.c.step, reports.c.epoch, reports.c.at, type_coerce(reports.c.metrics, Text)
).order_by(reports.c.seq)


def read_metric_columns(db: Connection, number: int, trial: int, after: int) -> ReportedValues:
    """Return the values of a trial's reports with sequence numbers above `after`, as columns."""
    here = reports.c
    rows = db.execute(_TELLING.where(here.experiment == number, here.trial == trial, here.seq > after))
    return join([_gathered(page) for page in rows.partitions(_PAGE)])


def _gathered(rows: Sequence[Row[Any]]) -> ReportedValues:
    seq, kind, step, epoch, at, metrics = zip(*rows, strict=True)
    return gather(zip(kind, step, epoch, at, _decoded(metrics), strict=True), seq=seq[-1])


def _decoded(texts: tuple[str, ...]) -> list[dict[str, float]]:
    decoded: list[Any] = from_json(f"[{','.join(texts)}]")  # accepts NaN and infinity, too
    return decoded
