"""Open transactions in a database, and wait for a database server that restarts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from kernel_backend.retry import RetryPolicy
from kernel_backend.store.base import StoreUnavailable
from kernel_backend.store.connect import connect, migrate, reason_of, translated_errors
from kernel_backend.store.postgresql import DatabaseInUse, connect_alone, was_committed
from kernel_backend.store.transaction import Transaction
from kernel_backend.store.url import shown

OUTAGE_S = 20.0  # how long calls wait for a lost server; later calls fail at once until the server is back
OUTCOME_S = 60.0  # how long a write waits to find out whether its commit, during which the server was lost, took place
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)

_log = logging.getLogger(__name__)


class Database:
    """Access to one database by transactions: any number that read at a time, and one that writes.

    With `alone` no other service can write to a PostgreSQL database as long as this object exists (a SQLite file
    belongs to the service of one home directory). Raises StoreUnavailable, also if the server cannot be reached at
    present.
    """

    def __init__(self, url: URL, *, alone: bool = False) -> None:
        self.engine, self._waits = connect(url), url.get_backend_name() == "postgresql"
        writing = connect_alone(url) if alone and self._waits else self.engine
        self._writer = writing.execution_options(writes=True)
        self._lazy_writer = writing.execution_options(writes=True, lazily=True)
        self._lock = threading.Lock()  # writers queue here: polling for the database's own lock is slow and unfair
        self._lost: float | None = None  # monotonic time since which there is no connection
        try:
            with translated_errors(self.engine):
                migrate(self._writer)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections to the database."""
        self.engine.dispose()
        self._writer.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection within a transaction that reads; if the server has gone, wait a while for its return."""
        with translated_errors(self.engine), self._connected(self.engine) as db:
            yield db

    @contextmanager
    def writing(self, *, lazily: bool = False) -> Iterator[Transaction]:
        """Yield a transaction that writes, and commit it at the end of the block.

        Set `lazily` if a power failure may lose the commit, because its data would be sent or computed again.
        """
        writer = self._lazy_writer if lazily else self._writer
        with self._lock, translated_errors(self.engine), self._begun(writer) as transaction:
            yield transaction
            transaction.finish()
            self._commit(transaction)

    @contextmanager
    def _begun(self, writer: Engine) -> Iterator[Transaction]:
        db = self._connected(writer)
        try:
            try:
                transaction = Transaction(db)
            except DBAPIError as error:  # nothing was written yet: a connection that just broke may be replaced
                if not (self._waits and error.connection_invalidated):
                    raise
                db.close()
                db = self._connected(writer)
                transaction = Transaction(db)
            yield transaction
        finally:
            db.close()  # rolls back what was not committed

    def _connected(self, engine: Engine) -> Connection:
        """Return a connection; if the server cannot be reached, keep trying until it has been gone for `OUTAGE_S`."""
        for pause in RetryPolicy(_PAUSES, limit=OUTAGE_S).waits():
            try:
                connection = engine.connect()
            except (OperationalError, DatabaseInUse) as error:
                if not self._may_wait(error):
                    raise
            else:
                self._found()
                return connection
            time.sleep(pause)
        return engine.connect()

    def _may_wait(self, error: Exception) -> bool:
        """Record since when the server cannot be reached; return whether a call should still wait for it."""
        if not self._waits:
            return False
        now = time.monotonic()
        if self._lost is None:
            self._lost = now
            _log.warning("the database %s is lost, and waited for: %s", shown(self.engine.url), reason_of(error))
        return now - self._lost < OUTAGE_S

    def _found(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            _log.warning("the database %s is back after %.1f s", shown(self.engine.url), time.monotonic() - lost)

    def _commit(self, transaction: Transaction) -> None:
        """Commit a transaction; if the connection breaks meanwhile, find out from the server if it was committed."""
        try:
            transaction.db.commit()
        except DBAPIError as error:
            if transaction.id is None or not error.connection_invalidated:
                raise
            if not self._took_place(transaction.id):
                raise
            _log.info("a commit was answered by no server, but it took place")

    def _took_place(self, id: int) -> bool:
        deadline = time.monotonic() + OUTCOME_S
        while True:
            try:
                with self._connected(self.engine) as db:
                    return was_committed(db, id)
            except DBAPIError as error:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"the database {shown(self.engine.url)} was lost while it stored something, and has not come "
                        "back to tell whether it did: look at what is there before you try again"
                    ) from error
            time.sleep(_PAUSES[-1])
