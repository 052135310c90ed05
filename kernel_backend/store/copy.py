"""Copy a whole database, SQLite or PostgreSQL, to another in one transaction, and compare the copied rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    TypeDecorator,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.exc import DataError

from kernel_backend.errors import Conflict, DaylightError, InvalidRequest, NotFound
from kernel_backend.store.connect import check_schema, connect, migrate, translated_errors
from kernel_backend.store.postgresql import connect_alone, connect_postgresql
from kernel_backend.store.tables import metadata, sequence
from kernel_backend.store.url import shown

PAGE = 2000  # rows that are read and inserted at once
_MODULUS = 2**128

Say = Callable[[str], None]


class CopyFailed(DaylightError):
    """Error: rows in the target differ from those of the source, so that the copy was rolled back."""


class TableContents(NamedTuple):
    """Number of rows of a table, and a digest of them that does not depend on their order."""

    rows: int = 0
    digest: int = 0

    def plus(self, row: tuple[Any, ...]) -> TableContents:
        """Return the number of rows and the digest after one more row is added."""
        digest = hashlib.blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest()
        return TableContents(self.rows + 1, (self.digest + int.from_bytes(digest)) % _MODULUS)


def copy_database(source: URL, target: URL, say: Say, *, running: bool = False) -> dict[str, TableContents]:
    """Copy all rows of the database `source` to `target`, which must be empty.

    Return the number of rows and a digest of each table, by name. The copy is a consistent snapshot, and is rolled back
    on any error. `say` is called with messages about the progress. With `running` a service may continue to use a
    source on PostgreSQL meanwhile. Raises InvalidRequest, NotFound, Conflict if the target is not empty,
    StoreUnavailable, and CopyFailed if the copied rows differ.
    """
    if source == target:
        raise InvalidRequest(f"{shown(source)} cannot be copied to itself: name another database")
    reading = _reader(source, running)
    try:
        with translated_errors(reading), reading.connect() as db:
            check_schema(db)
            writing = _writer(target)
            try:
                with translated_errors(writing):
                    migrate(writing)
                    return _copy_all(db, writing, say)
            finally:
                writing.dispose()
    finally:
        reading.dispose()


def _reader(source: URL, running: bool) -> Engine:
    """Return a SQLAlchemy engine whose transactions see a consistent snapshot of the database `source`.

    With `running`, a service may use a PostgreSQL database meanwhile; otherwise no service may.
    """
    if source.get_backend_name() == "postgresql":
        engine = connect_postgresql(source) if running else connect_alone(source)
        return engine.execution_options(isolation_level="REPEATABLE READ", stream_results=True)
    if not Path(source.database or "").is_file():
        raise NotFound(f"there is no file {source.database}")
    file = f"file:{quote(str(Path(source.database or '').absolute()))}"
    engine = create_engine(URL.create("sqlite", database=file, query={"mode": "rw", "uri": "true"}))
    event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    event.listen(engine, "begin", lambda db: db.exec_driver_sql("BEGIN"))
    return engine


def _writer(target: URL) -> Engine:
    if target.get_backend_name() == "postgresql":
        return connect_alone(target)
    file = Path(target.database or "")
    try:
        file.touch(mode=0o600)  # SQLite would use the umask
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error.strerror}") from None
    return connect(target).execution_options(writes=True)


def _copy_all(source: Connection, writing: Engine, say: Say) -> dict[str, TableContents]:
    copied = {}
    with writing.begin() as target:
        _check_empty(target)
        target.execute(delete(sequence))  # a new database has one row in this table
        for table in metadata.sorted_tables:  # sorted so that rows come after the rows to which they refer
            plain = _plain(table)
            copied[table.name] = sent = _copy_table(source, target, plain)
            arrived = TableContents()
            for row in _rows(target, plain):
                arrived = arrived.plus(row)
            if arrived != sent:
                raise CopyFailed(
                    f"table {table.name}: {sent.rows} rows were read and {arrived.rows} arrived, or not as they were: "
                    f"nothing was copied to {shown(writing.url)}"
                )
            say(f"{table.name}: {sent.rows:,} copied")
    return copied


def _check_empty(target: Connection) -> None:
    for table in metadata.sorted_tables:
        rows: int = target.execute(select(func.count()).select_from(table)).scalar_one()
        if rows and not (table is sequence and target.execute(select(sequence.c.value)).scalar_one() == 0):
            raise Conflict(
                f"{shown(target.engine.url)} holds {table.name} ({rows:,}): nothing was copied, since a copy needs "
                "an empty database"
            )


def _plain(table: Table) -> Table:
    """Return a copy of a table's definition in which columns with JSON or records are plain text columns.

    Rows can then be copied unchanged and fast, without parsing their JSON.
    """
    types = {each.name: each.type for each in table.columns}
    return Table(
        table.name,
        MetaData(),
        *(Column(name, kind.impl if isinstance(kind, TypeDecorator) else kind) for name, kind in types.items()),
    )


def _copy_table(source: Connection, target: Connection, table: Table) -> TableContents:
    contents, page = TableContents(), list[dict[str, Any]]()
    for row in _rows(source, table):
        contents = contents.plus(row)
        page.append(dict(zip(table.columns.keys(), row, strict=True)))
        if len(page) == PAGE:
            _insert(target, table, page)
            page.clear()
    _insert(target, table, page)
    return contents


def _insert(target: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    try:
        target.execute(insert(table), rows)
    except (DataError, OverflowError) as error:
        reason = getattr(error, "orig", None) or error
        raise InvalidRequest(
            f"table {table.name}: a value cannot be stored there: {reason}. Nothing was copied"
        ) from None


def _rows(db: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table; their values have the same Python types for SQLite and PostgreSQL."""
    reads = [next((read for kind, read in _READ if isinstance(column.type, kind)), str) for column in table.columns]
    for row in db.execute(select(table), execution_options={"yield_per": PAGE}):
        yield tuple(
            None if value is None else _converted(read, value, table) for read, value in zip(reads, row, strict=True)
        )


def _converted(read: Callable[[Any], Any], value: Any, table: Table) -> Any:
    try:
        converted = read(value)
    except ValueError:
        converted = None
    if converted != value:  # SQLite stores a value of any type in any column
        kind = "number" if read is _float else read.__name__
        raise InvalidRequest(f"table {table.name} holds {value!r} in a column of type {kind}. Nothing was copied")
    return converted


def _float(value: Any) -> float:
    return float(value) + 0.0  # SQLite stores -0.0 as 0.0


_READ: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = (
    (Double, _float),
    (Boolean, bool),
    (Integer, int),
    (LargeBinary, bytes),
)
