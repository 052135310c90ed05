"""One write: a connection that holds the database's write lock, gives numbers, and says what became known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, insert, select, update

from kernel_backend.errors import NotFound
from kernel_backend.model import states
from kernel_backend.model.events import Event
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.trial import Attempt, Trial
from kernel_backend.store.tables import (
    AnyRecord,
    attempts,
    events,
    experiments,
    from_row,
    sequence,
    to_row,
    trials,
)

_ENDED = states.TRIAL_ENDED | states.EXPERIMENT_ENDED | {states.AttemptState.ENDED}
Stateful = TypeVar("Stateful", Experiment, Trial, Attempt)


def get_experiment(db: Connection, number: int) -> Experiment:
    """One experiment; raises NotFound."""
    row = db.execute(select(experiments).where(experiments.c.number == number)).first()
    return _found(Experiment, row, f"experiment #{number}")


def get_trial(db: Connection, number: int, index: int) -> Trial:
    """One trial; raises NotFound."""
    row = db.execute(select(trials).where(trials.c.experiment == number, trials.c.index == index)).first()
    return _found(Trial, row, f"trial {number}.{index}")


def get_attempt(db: Connection, key: AttemptId) -> Attempt:
    """One attempt; raises NotFound."""
    return _found(Attempt, db.execute(select(attempts).where(*is_attempt(key))).first(), f"attempt {key}")


def get_token_digest(db: Connection, key: AttemptId) -> str:
    """The digest of an attempt's token; raises NotFound."""
    row = db.execute(select(attempts.c.token_digest).where(*is_attempt(key))).first()
    if row is None:
        raise _missing(f"attempt {key}")
    digest: str = row.token_digest
    return digest


def is_attempt(key: AttemptId) -> tuple[Any, ...]:
    """The conditions that pick one attempt."""
    here = attempts.c
    return here.experiment == key.experiment, here.trial == key.trial, here.number == key.number


def _found(kind: type[AnyRecord], row: Row[Any] | None, what: str) -> AnyRecord:
    if row is None:
        raise _missing(what)
    return from_row(kind, row._mapping)


def _missing(what: str) -> NotFound:
    return NotFound(f"there is no {what}: `daylight list` shows the experiments there are")


def changed(record: AnyRecord, changes: Mapping[str, Any]) -> AnyRecord:
    """The record with other values, checked like new ones; an unknown field is an error of the caller's."""
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    return type(record).model_validate(fields | dict(changes))


def advanced(record: Stateful, event: Event, at: float, changes: Mapping[str, Any]) -> Stateful:
    """The record after `event`, `ended_at` being set or cleared with its state; raises IllegalTransition."""
    state = states.advance(record.state, event)
    ended_at = (record.ended_at or at) if state in _ENDED else None
    return changed(record, {"ended_at": ended_at, **changes, "state": state})


class Transaction:
    """What a write does to the database; nothing of it is seen before it ends, all of it after."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        newest: int = db.execute(select(sequence.c.value).with_for_update()).scalar_one()
        self._seq = self._before = newest

    def next_seq(self) -> int:
        """The number of the next message."""
        self._seq += 1
        return self._seq

    def finish(self) -> None:
        """Keep the numbers that were given."""
        if self._seq != self._before:
            self.db.execute(update(sequence).values(value=self._seq))

    def say(self, at: float, record: Experiment | Trial | Attempt) -> None:
        """Append a message with the whole record as it is now."""
        if isinstance(record, Experiment):
            self._event(at, record.number, None, "experiment", record.to_json())
        elif isinstance(record, Trial):
            self._event(at, record.experiment, record.index, "trial", record.to_json())
        else:
            self._event(at, record.experiment, record.trial, "attempt", record.to_json())

    def note(self, at: float, key: AttemptId, level: str, text: str) -> None:
        """Append a sentence for the person."""
        data = {"text": text, "level": level, "attempt": key.number}
        self._event(at, key.experiment, key.trial, "note", data)

    def _event(self, at: float, experiment: int, trial: int | None, type_: str, data: dict[str, Any]) -> None:
        row = {"seq": self.next_seq(), "at": at, "experiment": experiment, "trial": trial}
        self.db.execute(insert(events), row | {"type": type_, "data": data})

    def save_experiment(self, experiment: Experiment) -> None:
        """Write all its fields."""
        self.db.execute(update(experiments).where(experiments.c.number == experiment.number), to_row(experiment))

    def save_trial(self, trial: Trial) -> None:
        """Write all its fields."""
        here = trials.c.experiment == trial.experiment, trials.c.index == trial.index
        self.db.execute(update(trials).where(*here), to_row(trial))

    def save_attempt(self, attempt: Attempt) -> None:
        """Write all its fields; the token's digest stays."""
        self.db.execute(update(attempts).where(*is_attempt(attempt.id)), to_row(attempt))
