"""Define the database tables, and convert records to rows and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from pydantic_core import from_json, to_json, to_jsonable_python
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    CursorResult,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Select,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    select,
    text,
)

from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.utilisation import QUANTITIES
from kernel_backend.model.record import Record
from kernel_backend.model.search.space import Space
from kernel_backend.model.times import PARTS
from kernel_backend.model.trial import Trial

AnyRecord = TypeVar("AnyRecord", bound=Record)


def to_text(value: Any) -> str:
    """Return a value as JSON text, with `NaN` and `Infinity` as Python writes them; `from_json` reads such texts."""
    return to_json(value, inf_nan_mode="constants").decode()


class JsonText(TypeDecorator[Any]):
    """Column type for JSON values that are stored as text; NaN and infinity are preserved."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return a value as JSON text for the database; None becomes NULL."""
        return None if value is None else to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value that a JSON text from the database holds; None for NULL."""
        return None if value is None else from_json(value)


class RecordText(TypeDecorator[Any]):
    """Column type for immutable records that are stored as JSON text; rows with equal texts share one record."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Record]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Return a record as JSON text for the database."""
        return to_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Record | None:
        """Return the record that a JSON text from the database holds; None for NULL."""
        return None if value is None else read_record(self.kind, value)


@lru_cache(maxsize=4096)
def read_record(kind: type[Record], text: str) -> Record:
    """Return the record of class `kind` that a JSON text holds; raises ValueError if it is invalid."""
    return kind.model_validate(from_json(text))


# SQLite uses a 64-bit row id only for a column declared INTEGER.
Seq = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()
# Literals, by which the database selects the indexes of these conditions.
IS_NOTE = text("type = 'note'")
IS_UNUSUAL = text("(failure IS NOT NULL OR holds NOT IN ('[]', '[\"search\"]'))")

# One row: the newest sequence number. Writers lock it first, so that numbers become visible in order.
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
    Column("request", Text),
    Index("experiments_by_request", "owner", "request", unique=True),
    Index("experiments_by_owner", "owner", "number"),
    Index("experiments_by_group", "group", "number"),
    Index("experiments_by_state", "state"),
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
    Column("uid", Text, nullable=False, server_default=""),  # "" in trials created before this column
    Column("best_value", Double),  # that of `best`, for the index
    Index("trials_by_state", "experiment", "state"),
    Index("trials_by_best", "experiment", "best_value"),
    # Few trials of a search have failed, or wait for more than the search.
    Index("unusual_trials", "experiment", "index", sqlite_where=IS_UNUSUAL, postgresql_where=IS_UNUSUAL),
)

attempts = Table(
    "attempts",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False, index=True),
    Column("placement", JsonText, nullable=False),
    Column("pool", Text, nullable=False, server_default="local"),
    Column("resume_from", Text),
    Column("created_at", Double, nullable=False),
    Column("granted_at", Double),
    Column("nodes", JsonText, nullable=False, server_default="[]"),
    Column("ended_at", Double),
    Column("outcome", Text),
    Column("failure", JsonText),
    Column("accepted", BigInteger, nullable=False),
    Column("backend", Text),
    Column("backend_reason", Text),
    Column("guarantee", Text),
    Column("trace", JsonText),
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
    # An index for overviews: few of an experiment's messages are notes.
    Index("notes_by_experiment", "experiment", "seq", sqlite_where=IS_NOTE, postgresql_where=IS_NOTE),
)

# Inserts must be fast. No foreign key: the attempt is read in the same transaction, and is never deleted.
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
    Index("reports_by_trial", "experiment", "trial", "seq"),
)

# Events of searches with the decisions on them; each search's numbers have no gaps.
search_log = Table(
    "search_log",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=False),
    Column("experiment", Integer, ForeignKey("experiments.number"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("trial", Integer),  # trial that the entry is about
    Column("at", Double, nullable=False),
    Column("event", JsonText, nullable=False),
    Column("decision", JsonText),
    UniqueConstraint("experiment", "number", name="search_log_numbers"),
    Index("search_log_by_experiment", "experiment", "seq"),
)

# What was read of a search's log and trials, as `service.search.stored` packs it. It can be computed again at any time.
search_histories = Table(
    "search_histories",
    metadata,
    Column("experiment", Integer, ForeignKey("experiments.number"), primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
)

# Provenance records of attempts; of each name the first is kept.
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

# Where the time of each rank went: cumulative seconds of an attempt by part, replaced by newer ones.
rank_times = Table(
    "rank_times",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("steps", BigInteger, nullable=False),
    *(Column(part, Double, nullable=False) for part in PARTS),
    Column("newest", JsonText, nullable=False),  # the record of the rank without `whole`
)

# Use of the slot of each rank: its newest sample (number 0), and the periods of its curve. NULL is unknown.
slot_use = Table(
    "slot_use",
    metadata,
    Column("experiment", Integer, primary_key=True, autoincrement=False),
    Column("trial", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("node", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    *(Column(name, Double) for name in QUANTITIES),
)

# Artifacts, the newest of each name. `seq` is the number of the message about it.
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

# Reservations. No foreign key: a search requests gangs before it chooses the trial.
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

# Quota fields that admins have set in this service; they take precedence over the hub's.
quotas = Table(
    "quotas",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("changed", JsonText, nullable=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
)

pools = Table(
    "pools",
    metadata,
    Column("name", Text, primary_key=True),
    Column("settings", JsonText, nullable=False),
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

node_faults = Table(
    "node_faults",
    metadata,
    Column("attempt", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("node", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("reason", Text, nullable=False),
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

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("events", JsonText, nullable=False),
    Column("everyone", Boolean, nullable=False),
    Column("at", Double, nullable=False),
    Column("link", Text, nullable=False, server_default=""),
    Column("confirmed_at", Double),
    Column("request", Text),
    Column("admin_at", Double),
    Column("off", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("failing_since", Double),
    Column("delivered_at", Double),
    Column("dropped", Integer, nullable=False),
    Index("webhooks_by_request", "owner", "request", unique=True),
)

# Notices that wait for a webhook, oldest first by `seq`.
outbox = Table(
    "outbox",
    metadata,
    Column("seq", Seq, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("webhook", Integer, nullable=False),
    Column("event", Text, nullable=False),
    Column("experiment", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Index("outbox_by_webhook", "webhook", "seq"),
)

# Versions of registered models, which are never changed. No foreign key: what a deleted experiment was stays known.
model_versions = Table(
    "model_versions",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("experiment", Integer, nullable=False),
    Column("trial", Integer, nullable=False),
    Column("search", Boolean, nullable=False),
    Column("checkpoint", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("group", Text, nullable=False),
    Column("metric", JsonText, nullable=False),
    Column("metrics", JsonText, nullable=False),
    Column("guarantee", Text),
    Column("data", Text),
    Column("who", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("note", Text, nullable=False),
    Index("model_versions_by_experiment", "experiment"),
)

# The log of each model, to which entries are only appended; `number` has no gaps.
model_log = Table(
    "model_log",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("act", Text, nullable=False),
    Column("version", Integer),
    Column("alias", Text, nullable=False),
    Column("before", Integer),
    Column("note", Text, nullable=False),
)


def to_row(record: Record) -> dict[str, Any]:
    """Return a record's fields as column values; for a trial, `best_value` in addition, by which SQL can sort."""
    row = {
        name: to_jsonable_python(getattr(record, name), inf_nan_mode="constants") for name in type(record).model_fields
    }
    return row | {"best_value": record.best and record.best.value} if isinstance(record, Trial) else row


def rows_of(kind: type[Record], table: Table) -> Select[Any]:
    """Return a query for the columns that hold a record's fields, without other columns such as a token's digest."""
    return select(*(table.c[name] for name in kind.model_fields))


def from_row(kind: type[AnyRecord], row: Row[Any]) -> AnyRecord:
    """Return the record of class `kind` in a row of a query that `rows_of` has built."""
    return kind.model_validate(row._asdict())


def all_from(kind: type[AnyRecord], result: CursorResult[Any]) -> list[AnyRecord]:
    """Return the records of class `kind` in all rows of a result; fast even for hundreds of thousands of rows."""
    names = tuple(result.keys())  # reading them for each row would double the time
    return [kind.model_validate(dict(zip(names, row, strict=True))) for row in result]
