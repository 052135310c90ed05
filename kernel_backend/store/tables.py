"""Define the tables, and convert records to rows and back."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from pydantic_core import to_json, to_jsonable_python
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    CursorResult,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    cast,
    select,
    text,
    type_coerce,
)

from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Record
from kernel_backend.model.search.space import Space

AnyRecord = TypeVar("AnyRecord", bound=Record)


def to_text(value: Any) -> str:
    """Return JSON with Python's literals for NaN and infinity, which JSON lacks: `json.loads` reads them."""
    return to_json(value, inf_nan_mode="constants").decode()


class JsonText(TypeDecorator[Any]):
    """Column type for JSON as text: values round-trip, NaN and infinity too."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return the text; NULL for None."""
        return None if value is None else to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value that was passed to `process_bind_param`."""
        if value is None:
            return None
        if value == "{}":  # as most are, and there may be millions
            return {}
        return [] if value == "[]" else json.loads(value)


class RecordText(TypeDecorator[Any]):
    """Column type for frozen records as JSON text: equal texts, which are many, share one object."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Record]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Return the text."""
        return to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Record | None:
        """Return the record that was passed to `process_bind_param`."""
        return None if value is None else read_record(self.kind, value)


@lru_cache(maxsize=4096)
def read_record(kind: type[Record], text: str) -> Record:
    """Return the record of a JSON text; raises ValueError."""
    return kind.model_validate(json.loads(text))


# SQLite makes a 64-bit row id only of a column that is declared INTEGER.
Seq = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()
IS_NOTE = text("type = 'note'")  # with a literal in the statement, by which the index is chosen

# One row: the newest sequence number. Each writer locks it first, so numbers become visible in order.
sequence = Table("sequence", metadata, Column("value", Seq, primary_key=True, autoincrement=False))

experiments = Table(
    "experiments",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("group", Text, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("config", RecordText(Config), nullable=False),
    Column("params", JsonText, nullable=False),
    Column("space", RecordText(Space), nullable=False),
    Column("python", Text, nullable=False),
    Column("cwd", Text, nullable=False),
    Column("notebook", Text),
    Column("rerun_of", Integer),
    Column("begins_from", Text),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("priority", Integer),
    Column("note", Text, nullable=False, server_default=""),
    Column("tags", JsonText, nullable=False, server_default="[]"),
    Column("deleted_at", Double),
    Column("purged_at", Double),
    Index("experiments_by_owner", "owner", "number"),
    Index("experiments_by_group", "group", "number"),
)

trials = Table(
    "trials",
    metadata,
    Column("experiment", Integer, ForeignKey("experiments.number"), primary_key=True, autoincrement=False),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False, index=True),
    Column("holds", JsonText, nullable=False),
    Column("params", JsonText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("epoch", Double, nullable=False),
    Column("total_steps", BigInteger),
    Column("until", Integer),
    Column("begins_from", Text),
    Column("checkpoint", Text),
    Column("metrics", JsonText, nullable=False),
    Column("best", JsonText),
    Column("training", JsonText, nullable=False),
    Column("failure", JsonText),
    Column("excluded", JsonText, nullable=False),
    Column("ended_at", Double),
    Column("uid", Text, nullable=False, server_default=""),  # "" in trials from before there were any
    Index("trials_by_state", "experiment", "state"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False, index=True),
    Column("placement", JsonText, nullable=False),
    Column("resume_from", Text),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("outcome", Text),
    Column("failure", JsonText),
    Column("accepted", BigInteger, nullable=False),
    Column("backend", Text),
    Column("backend_reason", Text),
    Column("guarantee", Text),
    Column("token_digest", Text, nullable=False),
    ForeignKeyConstraint(["experiment", "trial"], ["trials.experiment", "trials.index"]),
    Index("attempts_by_end", "ended_at"),
)

events = Table(
    "events",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("experiment", Integer, ForeignKey("experiments.number"), nullable=False),
    Column("trial", Integer),
    Column("type", Text, nullable=False),
    Column("data", JsonText, nullable=False),
    Index("events_by_experiment", "experiment", "seq"),
    # Few of an experiment's messages are notes, and each overview reads them.
    Index("notes_by_experiment", "experiment", "seq", sqlite_where=IS_NOTE, postgresql_where=IS_NOTE),
)

# The hot path. No foreign key: its attempt is read in the same transaction, and nothing is ever deleted.
reports = Table(
    "reports",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=False),
    Column("experiment", Integer, nullable=False),
    Column("trial", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("epoch", Double, nullable=False),
    Column("metrics", JsonText, nullable=False),
    UniqueConstraint("experiment", "trial", "kind", "step", name="reports_meaning"),
    Index("reports_by_experiment", "experiment", "seq"),
)

# Events of a search and the decisions on them; the numbers of each search have no gaps.
search_log = Table(
    "search_log",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=False),
    Column("experiment", Integer, ForeignKey("experiments.number"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("trial", Integer),  # the trial that it is about
    Column("at", Double, nullable=False),
    Column("event", JsonText, nullable=False),
    Column("decision", JsonText),
    UniqueConstraint("experiment", "number", name="search_log_numbers"),
    Index("search_log_by_experiment", "experiment", "seq"),
)

# Provenance records of attempts; the first record of each name counts.
facts = Table(
    "facts",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("value", JsonText, nullable=False),
)

# Artifacts: the newest of each name. `seq` is that of the message about it.
artifacts = Table(
    "artifacts",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("seq", Seq, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("media", Text, nullable=False),
    Column("file", Text, nullable=False),
)

# Reservation records. No foreign key: a search requests gangs before it chooses the trial.
reservation_records = Table(
    "claims",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("nth", Integer, primary_key=True, autoincrement=False),
    Column("head_since", Double),
    Column("kind", Text),
    Column("node", Text),
    Column("kept_since", Double),
    Column("passed", Boolean, nullable=False),
    Column("committed", Double),
    Column("kept_priority", Integer),
    Column("leaving", Double),
)

# The numbers that are set here for a user or a group; they win over the hub's.
quotas = Table(
    "quotas",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("changed", JsonText, nullable=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
)

drained = Table(
    "drained",
    metadata,
    Column("node", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("act", Text, nullable=False),
    Column("on", Text, nullable=False),
    Column("detail", Text, nullable=False),
)


def inside(db: Connection, column: Column[Any], key: str) -> Any:
    """Return an expression for a key in a column of JSON objects; the caller adds `as_float` or `as_string`."""
    held = cast(column, JSON) if db.dialect.name == "postgresql" else type_coerce(column, JSON)
    return held[key]


def to_row(record: Record) -> dict[str, Any]:
    """Return a record's fields as column values."""
    return {
        name: to_jsonable_python(getattr(record, name), inf_nan_mode="constants") for name in type(record).model_fields
    }


def rows_of(kind: type[Record], table: Table) -> Select[Any]:
    """Return a query for a record's fields, as `from_row` takes them, and no other columns (a token's digest)."""
    return select(*(table.c[name] for name in kind.model_fields))


def from_row(kind: type[AnyRecord], row: Row[Any]) -> AnyRecord:
    """Return the record of a row of `rows_of`."""
    return kind.model_validate(row._asdict())


def all_from(kind: type[AnyRecord], result: CursorResult[Any]) -> list[AnyRecord]:
    """Return the records of many rows, quickly: there may be hundreds of thousands."""
    names = tuple(result.keys())  # read for each row, they take as long as all the rest
    return [kind.model_validate(dict(zip(names, row, strict=True))) for row in result]
