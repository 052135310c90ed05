"""Write in one transaction: exclude other writers, assign sequence numbers, and publish messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Table, bindparam, func, insert, null, select, update

from kernel_backend.errors import NotFound
from kernel_backend.model import states
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.events import Event
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record
from kernel_backend.model.search.effects import Added, Effect
from kernel_backend.model.trial import Attempt, Trial
from kernel_backend.store.tables import (
    AnyRecord,
    attempts,
    audit,
    events,
    experiments,
    from_row,
    rows_of,
    sequence,
    to_row,
    trials,
)

AT_ONCE = 500  # values in one statement: databases limit the number of its parameters
_ENDED = states.TRIAL_ENDED | states.EXPERIMENT_ENDED | {states.AttemptState.ENDED}
Stateful = TypeVar("Stateful", Experiment, Trial, Attempt)


def get_experiment(db: Connection, number: int) -> Experiment:
    """Return the stored record of an experiment; raises NotFound."""
    return _get(db, Experiment, (number,), f"experiment #{number}")


def get_trial(db: Connection, number: int, index: int) -> Trial:
    """Return the stored record of a trial; raises NotFound."""
    return _get(db, Trial, (number, index), f"trial {number}.{index}")


def get_attempt(db: Connection, key: AttemptId) -> Attempt:
    """Return the stored record of an attempt; raises NotFound."""
    return _get(db, Attempt, key, f"attempt {key}")


def get_token_digest(db: Connection, key: AttemptId) -> str:
    """Return the digest of the secret token that was issued for an attempt; raises NotFound."""
    query = select(attempts.c.token_digest).where(*_by_key(attempts))
    digest: str | None = db.execute(query, _key(attempts, key)).scalar_one_or_none()
    if digest is None:
        raise _missing(f"attempt {key}")
    return digest


def get_uid(db: Connection, number: int, index: int) -> str:
    """Return the unique id of a trial; raises NotFound."""
    uid: str | None = db.execute(select(trials.c.uid).where(*_by_key(trials)), _key(trials, (number, index))).scalar()
    if uid is None:
        raise _missing(f"trial {number}.{index}")
    return uid


def _by_key(table: Table) -> list[ColumnElement[bool]]:
    return [column == bindparam(f"key_{column.name}") for column in table.primary_key]


def _key(table: Table, values: Iterable[Any]) -> dict[str, Any]:
    return {f"key_{column.name}": value for column, value in zip(table.primary_key, values, strict=True)}


# Built once: building a statement takes longer than executing it.
_TABLES: dict[type[Record], Table] = {Experiment: experiments, Trial: trials, Attempt: attempts}
_READ = {kind: rows_of(kind, table).where(*_by_key(table)) for kind, table in _TABLES.items()}
_SAVE = {kind: update(table).where(*_by_key(table)) for kind, table in _TABLES.items()}
_LOCK = select(sequence.c.value, null()).with_for_update()
_LOCK_AND_ID = select(sequence.c.value, func.txid_current()).with_for_update()  # of PostgreSQL


def _get(db: Connection, kind: type[AnyRecord], key: tuple[int, ...], what: str) -> AnyRecord:
    row = db.execute(_READ[kind], _key(_TABLES[kind], key)).first()
    if row is None:
        raise _missing(what)
    return from_row(kind, row)


def _missing(what: str) -> NotFound:
    return NotFound(f"there is no {what}: `daylight list` shows the experiments there are")


def changed(record: AnyRecord, changes: Mapping[str, Any]) -> AnyRecord:
    """Return a record with some fields replaced, validated like a new one."""
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    return type(record).model_validate(fields | dict(changes))


def advanced(record: Stateful, event: Event, at: float, changes: Mapping[str, Any]) -> Stateful:
    """Return a record in the state that follows by `event`, with `changes` to other fields.

    `ended_at` is set if the new state is an end, and cleared otherwise. Raises IllegalTransition if the record's state
    does not allow the event.
    """
    state = states.advance(record.state, event)
    ended_at = (record.ended_at or at) if state in _ENDED else None
    return changed(record, {"ended_at": ended_at, **changes, "state": state})


class Transaction:
    """Transaction that writes; its changes and messages become visible together when it is committed.

    `id` is PostgreSQL's number of the transaction, None on SQLite.
    """

    def __init__(self, db: Connection) -> None:
        newest: int
        self.id: int | None
        self.db = db
        newest, self.id = db.execute(_LOCK_AND_ID if db.dialect.name == "postgresql" else _LOCK).one()
        self._seq = self._before = newest

    def next_seq(self) -> int:
        """Return a new sequence number for a message."""
        self._seq += 1
        return self._seq

    def finish(self) -> None:
        """Store the last sequence number that was assigned; call it before the commit, after all changes."""
        if self._seq != self._before:
            self.db.execute(update(sequence).values(value=self._seq))

    def publish(self, at: float, record: Experiment | Trial | Attempt) -> None:
        """Append a message with the complete record of an experiment, trial or attempt."""
        if isinstance(record, Experiment):
            self._event(at, record.number, None, "experiment", record.to_json())
        elif isinstance(record, Trial):
            self._event(at, record.experiment, record.index, "trial", record.to_json())
        else:
            self._event(at, record.experiment, record.trial, "attempt", record.to_json())

    def note(self, at: float, key: AttemptId, level: str, text: str) -> None:
        """Append a message with a note for the user about an attempt; `level` is such as `warning` or `info`."""
        data = {"text": text, "level": level, "attempt": key.number}
        self._event(at, key.experiment, key.trial, "note", data)

    def kept(self, key: AttemptId, artifact: Artifact) -> int:
        """Append a message that an artifact of an attempt was stored; return the message's sequence number."""
        self._event(artifact.at, key.experiment, key.trial, "artifact", artifact.to_json())
        return self._seq

    def _event(self, at: float, experiment: int, trial: int | None, type_: str, data: dict[str, Any]) -> None:
        row = {"seq": self.next_seq(), "at": at, "experiment": experiment, "trial": trial}
        self.db.execute(insert(events), row | {"type": type_, "data": data})

    def write_down(self, entry: AuditEntry) -> AuditEntry:
        """Store an audit entry with the next number, and return it; numbers have no gaps, since writers take turns."""
        newest: int | None = self.db.execute(select(func.max(audit.c.seq))).scalar_one()
        numbered = entry.model_copy(update={"seq": 1 + (newest or 0)})
        self.db.execute(insert(audit), to_row(numbered))
        return numbered

    def add(self, at: float, experiment: int, new: Added) -> Trial:
        """Store and publish a new trial that a search has decided to create; its state is queued."""
        trial = Trial(experiment=experiment, state=states.TrialState.QUEUED, queued_at=at, **vars(new))
        self.db.execute(insert(trials), to_row(trial) | {"uid": uuid4().hex})
        self.publish(at, trial)
        return trial

    def carry_out(self, at: float, experiment: int, effect: Effect) -> Trial:
        """Apply a search's decision (`effect`) to an existing trial or a new one; store, publish and return the trial.

        Raises NotFound, and IllegalTransition if the trial's state does not allow it.
        """
        if isinstance(effect, Added):
            return self.add(at, experiment, effect)
        before = get_trial(self.db, experiment, effect.index)
        if effect.event is None:
            trial = changed(before, {**effect.changes, "state": before.state})
        else:
            trial = advanced(before, effect.event, at, effect.changes)
        self.save(trial)
        self.publish(at, trial)
        return trial

    def save(self, record: Experiment | Trial | Attempt) -> None:
        """Overwrite all fields of a stored record with those of `record`."""
        table, row = _TABLES[type(record)], to_row(record)
        self.db.execute(_SAVE[type(record)], row | _key(table, (row[column.name] for column in table.primary_key)))
