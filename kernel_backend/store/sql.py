"""Implement the store on SQLite (embedded) and PostgreSQL (for a hub), with the same statements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select
from typing_extensions import override

from kernel_backend.model import events
from kernel_backend.model.cluster.usage import ReservationRecord, UsageInterval
from kernel_backend.model.events import Event
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.trace import Trace
from kernel_backend.model.reports import ArtifactSaved, NoteLevel, Report, SpoolRecord
from kernel_backend.model.resources import LOCAL, Placement
from kernel_backend.model.search.effects import Moved
from kernel_backend.model.states import LIVE, AttemptState, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Attempt, Trial
from kernel_backend.model.views.search_status import TrialSummary
from kernel_backend.store import tables
from kernel_backend.store.base import Scheduled, Store
from kernel_backend.store.connect import product_of
from kernel_backend.store.database import Database
from kernel_backend.store.experiments import SqlExperimentStore
from kernel_backend.store.intake import add_validation, keep_artifact, take_in
from kernel_backend.store.listing import count_trials
from kernel_backend.store.outbox.sql import SqlOutboxStore
from kernel_backend.store.outlines import read_outlines, touched_trials
from kernel_backend.store.overviews import OverviewReader
from kernel_backend.store.quotas import SqlQuotaStore
from kernel_backend.store.register.sql import SqlRegisterStore
from kernel_backend.store.reported import SqlReportedStore
from kernel_backend.store.scheduled import read_open_attempts, read_scheduled, read_trained_on, restless
from kernel_backend.store.search_log import SqlSearchStore
from kernel_backend.store.stream import last_seq, read_changes, read_messages
from kernel_backend.store.tables import rows_of, to_row
from kernel_backend.store.transaction import (
    Transaction,
    advanced,
    changed,
    get_attempt,
    get_token_digest,
    get_trial,
    get_uid,
)
from kernel_backend.store.url import database_url
from kernel_backend.store.usage import (
    read_reservations,
    read_slot_seconds,
    read_trial_seconds,
    read_usage_intervals,
    save_reservations,
)


class SqlStore(
    SqlExperimentStore, SqlQuotaStore, SqlReportedStore, SqlSearchStore, SqlOutboxStore, SqlRegisterStore, Store
):
    """Store in a SQL database.

    `at` is the path of a SQLite file, or a URL of SQLite or PostgreSQL. With `alone` no other service can write to a
    PostgreSQL database meanwhile. Raises StoreUnavailable, and OtherVersion if this version of Daylight cannot use the
    database's schema.
    """

    def __init__(self, at: str | Path, *, alone: bool = False) -> None:
        self._database = Database(database_url(at), alone=alone)
        self._overviews = OverviewReader()

    @override
    def close(self) -> None:
        self._database.close()

    @override
    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading()

    @override
    def _writing(self, *, lazily: bool = False) -> AbstractContextManager[Transaction]:
        return self._database.writing(lazily=lazily)

    @override
    def product(self) -> str:
        with self._reading() as db:
            return product_of(db)

    # Trials

    @override
    def trials(self, number: int, states: Collection[TrialState] | None = None) -> list[Trial]:
        here = tables.trials.c
        query = rows_of(Trial, tables.trials).where(here.experiment == number)
        if states is not None:
            query = query.where(here.state.in_(states))
        return self._all(Trial, query.order_by(here.index))

    @override
    def restless_trials(self, number: int) -> list[Trial]:
        here = tables.trials.c
        query = rows_of(Trial, tables.trials).where(restless(), here.experiment == number)
        return self._all(Trial, query.order_by(here.index))

    @override
    def scheduled(self) -> Scheduled:
        with self._reading() as db:
            return read_scheduled(db)

    @override
    def trial_counts(self, number: int) -> dict[TrialState, int]:
        with self._reading() as db:
            return count_trials(db, [number])[number]

    @override
    def outlines(self, number: int, trials: Collection[int] | None = None) -> list[TrialSummary]:
        with self._reading() as db:
            return read_outlines(db, number, trials)

    @override
    def touched_trials(self, number: int, after: int) -> set[int]:
        with self._reading() as db:
            return touched_trials(db, number, after)

    @override
    def trial(self, number: int, index: int) -> Trial:
        with self._reading() as db:
            return get_trial(db, number, index)

    @override
    def trial_uid(self, number: int, index: int) -> str:
        with self._reading() as db:
            return get_uid(db, number, index)

    @override
    def newest_attempts(self) -> dict[tuple[int, int], int]:
        here = tables.trials.c
        with self._reading() as db:
            rows = db.execute(select(here.experiment, here.index, here.attempt))
            return {(number, index): attempt for number, index, attempt in rows}

    @override
    def live_trials(self) -> list[Trial]:
        here = tables.trials.c
        query = rows_of(Trial, tables.trials).where(here.state.in_(LIVE))
        return self._all(Trial, query.order_by(here.queued_at, here.experiment, here.index))

    @override
    def advance_trial(self, number: int, index: int, event: Event, at: float, **changes: Any) -> Trial:
        with self._writing() as tx:
            return tx.carry_out(at, number, Moved(index, event, changes))

    # Attempts

    @override
    def add_attempt(
        self,
        number: int,
        index: int,
        placement: Placement,
        resume_from: str | None,
        token_digest: str,
        at: float,
        beyond: int = 0,
        granted: bool = True,
        pool: str = LOCAL,
    ) -> Attempt:
        with self._writing() as tx:
            before = get_trial(tx.db, number, index)
            trial = advanced(before, events.Placed(), at, {"attempt": 1 + max(before.attempt, beyond)})
            attempt = Attempt(
                experiment=number,
                trial=index,
                number=trial.attempt,
                state=AttemptState.PLACED if granted else AttemptState.PENDING,
                placement=placement,
                pool=pool,
                resume_from=resume_from,
                created_at=at,
                granted_at=at if granted else None,
            )
            tx.db.execute(insert(tables.attempts), to_row(attempt) | {"token_digest": token_digest})
            tx.save(trial)
            tx.publish(at, attempt)
            tx.publish(at, trial)
            return attempt

    @override
    def attempt(self, key: AttemptId) -> Attempt:
        with self._reading() as db:
            return get_attempt(db, key)

    @override
    def attempts(self, number: int, index: int) -> list[Attempt]:
        here = tables.attempts.c
        query = rows_of(Attempt, tables.attempts).where(here.experiment == number, here.trial == index)
        return self._all(Attempt, query.order_by(here.number))

    @override
    def open_attempts(self) -> list[Attempt]:
        with self._reading() as db:
            return read_open_attempts(db)

    @override
    def trained_on(self, since: float, most: int) -> list[tuple[str, str, tuple[str, ...]]]:
        with self._reading() as db:
            return read_trained_on(db, since, most)

    @override
    def token_digest(self, key: AttemptId) -> str:
        with self._reading() as db:
            return get_token_digest(db, key)

    @override
    def advance_attempt(self, key: AttemptId, event: Event, at: float, **changes: Any) -> Attempt:
        with self._writing() as tx:
            attempt = advanced(get_attempt(tx.db, key), event, at, changes)
            tx.save(attempt)
            tx.publish(at, attempt)
            return attempt

    @override
    def set_trace(self, key: AttemptId, trace: Trace, at: float) -> None:
        with self._writing() as tx:
            attempt = changed(get_attempt(tx.db, key), {"trace": trace})
            tx.save(attempt)
            tx.publish(at, attempt)

    # Reports and messages

    @override
    def note(self, key: AttemptId, text: str, at: float, level: NoteLevel = "warning") -> None:
        with self._writing() as tx:
            tx.note(at, get_attempt(tx.db, key).id, level, text)

    @override
    def accept(self, key: AttemptId, records: Sequence[SpoolRecord], at: float) -> int:
        if not records:  # a heartbeat
            return self.attempt(key).accepted
        with self._writing(lazily=True) as tx:  # the spool has these records until the attempt has ended
            return take_in(tx, key, records, at)

    @override
    def add_validation(self, key: AttemptId, report: Report) -> None:
        with self._writing() as tx:
            add_validation(tx, key, report)

    @override
    def keep_artifact(self, key: AttemptId, saved: ArtifactSaved) -> None:
        with self._writing() as tx:
            keep_artifact(tx, key, saved)

    @override
    def messages(self, after: int, experiment: int | None = None, limit: int = 1000) -> list[Message]:
        with self._reading() as db:
            return read_messages(db, after, experiment, limit)

    @override
    def changes(self, after: int, limit: int = 1000) -> list[Message]:
        with self._reading() as db:
            return read_changes(db, after, limit)

    @override
    def last_seq(self) -> int:
        with self._reading() as db:
            return last_seq(db)

    @override
    def slot_seconds(self, number: int, at: float) -> float:
        with self._reading() as db:
            return read_slot_seconds(db, number, at)

    @override
    def trial_seconds(self, number: int, at: float, trials: Collection[int] | None = None) -> dict[int, float]:
        with self._reading() as db:
            return read_trial_seconds(db, number, at, trials)

    @override
    def usage_intervals(self, since: float) -> list[UsageInterval]:
        with self._reading() as db:
            return read_usage_intervals(db, since)

    @override
    def reservations(self) -> list[ReservationRecord]:
        with self._reading() as db:
            return read_reservations(db)

    @override
    def save_reservations(self, made: Sequence[ReservationRecord], gone: Sequence[ReservationRecord] = ()) -> None:
        with self._writing(lazily=True) as tx:
            save_reservations(tx.db, made, gone)
