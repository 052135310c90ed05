"""Read the unfinished work for the scheduler: a few columns of up to 100,000 rows, each row validated."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, Text, and_, or_, select, type_coerce

from kernel_backend.model.experiment import ScheduledExperiment
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import (
    EXPERIMENT_ENDED,
    HOLDING_SLOTS,
    LIVE,
    AttemptState,
    ExperimentState,
    Hold,
    TrialState,
)
from kernel_backend.model.trial import Attempt, ScheduledTrial
from kernel_backend.store.base import Scheduled
from kernel_backend.store.tables import (
    JsonText,
    RecordText,
    all_from,
    experiments,
    from_row,
    read_record,
    rows_of,
    trials,
)
from kernel_backend.store.tables import attempts as attempts_table
from kernel_backend.store.transaction import get_attempt, get_experiment

OPEN_ATTEMPT = [state for state in AttemptState if state is not AttemptState.ENDED]
OPEN_EXPERIMENT = [state for state in ExperimentState if state not in EXPERIMENT_ENDED]
TOGETHER = 1000  # rows that are validated at once
_Scheduled = TypeVar("_Scheduled", ScheduledExperiment, ScheduledTrial)


def restless() -> ColumnElement[bool]:
    """Return the SQL condition for trials that have neither ended nor been paused by their search."""
    here = trials.c
    return or_(here.state.in_(LIVE), and_(here.state == TrialState.PAUSED, here.holds != [Hold.SEARCH]))


def read_scheduled(db: Connection) -> Scheduled:
    """Return all unfinished experiments, trials and attempts.

    An experiment of which a record cannot be read is left out with its trials, and listed in the result as unreadable.
    """
    unreadable: dict[int, str] = {}
    open_ = _columns(ScheduledExperiment, experiments).where(experiments.c.state.in_(OPEN_EXPERIMENT))
    found = _records(db, ScheduledExperiment, experiments, open_.order_by(experiments.c.number), unreadable)
    for nth, each in enumerate(found):
        if each.config.search is not None:  # a searcher needs the other fields, too
            try:
                found[nth] = get_experiment(db, each.number)
            except (ValueError, TypeError) as error:
                unreadable[each.number] = f"experiments {each.number}: {error}"
    waiting = _columns(ScheduledTrial, trials).where(restless()).order_by(trials.c.experiment, trials.c.index)
    theirs = _records(db, ScheduledTrial, trials, waiting, unreadable)
    attempts = _attempts(db, theirs, unreadable)
    if unreadable:
        found = [each for each in found if each.number not in unreadable]
        theirs = [each for each in theirs if each.experiment not in unreadable]
    return Scheduled(found, theirs, attempts, unreadable)


def read_open_attempts(db: Connection) -> list[Attempt]:
    """Return the attempts that have not ended, oldest first."""
    here = attempts_table.c
    query = rows_of(Attempt, attempts_table).where(here.state.in_(OPEN_ATTEMPT))
    return all_from(Attempt, db.execute(query.order_by(here.created_at, here.experiment, here.trial, here.number)))


def read_trained_on(db: Connection, since: float, most: int) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (snapshot, pool, names of nodes) for attempts that began to train and were open after a time."""
    here, experiment = attempts_table.c, experiments.c
    query = (
        select(experiment.snapshot, here.pool, here.placement, here.nodes)
        .join(experiments, experiment.number == here.experiment)
        .where(here.backend.is_not(None), or_(here.ended_at.is_(None), here.ended_at > since))
        .order_by(here.created_at.desc())
        .limit(most)
    )
    return [
        (snapshot, pool, tuple(dict.fromkeys(each["name"] for each in nodes) or [each["node"] for each in placement]))
        for snapshot, pool, placement, nodes in db.execute(query)
    ]


def _attempts(db: Connection, trials: Sequence[ScheduledTrial], unreadable: dict[int, str]) -> list[Attempt]:
    """Return the attempts that have not ended, and ended ones whose trials do not show the end yet.

    If an attempt cannot be read, its experiment is added to `unreadable`. Only the attempt's placement is read then, if
    possible, since it still holds its slots.
    """
    here, key = attempts_table.c, attempts_table.primary_key
    keys = [AttemptId(*row) for row in db.execute(select(*key).where(here.state.in_(OPEN_ATTEMPT)))]
    newest = {AttemptId(each.experiment, each.index, each.attempt) for each in trials if each.state in HOLDING_SLOTS}
    found: list[Attempt] = []
    for each in [*keys, *sorted(newest.difference(keys))]:
        try:
            found.append(get_attempt(db, each))
        except (ValueError, TypeError) as error:
            unreadable[each.experiment] = f"attempts {each}: {error}"
            with contextlib.suppress(ValueError, TypeError):
                found.append(_slots_of(db, each))
    return found


def _slots_of(db: Connection, key: AttemptId) -> Attempt:
    """Read an attempt with only its key, state and placement; its other fields have their defaults.

    This is for an attempt whose record cannot be read as a whole, so that its slots still count as held.
    """
    here = attempts_table.c
    columns = here.experiment, here.trial, here.number, here.state, here.placement, here.created_at
    where = [column == value for column, value in zip(attempts_table.primary_key, key, strict=True)]
    return from_row(Attempt, db.execute(select(*columns).where(*where)).one())


def _columns(kind: type[_Scheduled], table: Table) -> Select[Any]:
    """Return a query for the columns of a record, with JSON as undecoded text.

    If the database driver decoded the JSON, a damaged value in one row would make all rows unreadable.
    """
    columns = (table.c[name] for name in kind.model_fields)
    return select(*(type_coerce(column, Text) if _decoder(column) else column for column in columns))


def _decoder(column: Column[Any]) -> Callable[[str], Any] | None:
    if isinstance(column.type, RecordText):
        return partial(read_record, column.type.kind)
    return _decoded if isinstance(column.type, JsonText) else None


@lru_cache(maxsize=4096)
def _decoded(text: str) -> Any:
    return tuple(json.loads(text))


def _records(
    db: Connection, kind: type[_Scheduled], table: Table, query: Select[Any], unreadable: dict[int, str]
) -> list[_Scheduled]:
    """Return the rows of a query as validated records, many rows at a time.

    If some rows together are invalid, each is validated by itself, so that only damaged rows are left out and added to
    `unreadable`.
    """
    decoders = {name: decode for name in kind.model_fields if (decode := _decoder(table.c[name]))}
    check = TypeAdapter(list[kind]).validate_python  # type: ignore[valid-type]
    found: list[_Scheduled] = []
    for rows in db.execute(query).partitions(TOGETHER):
        try:
            found += check(_fields(kind, decoders, rows))
        except (ValueError, TypeError):
            for row in rows:
                try:
                    found += check(_fields(kind, decoders, [row]))
                except (ValueError, TypeError) as error:
                    key = row[:2] if table is trials else row[:1]
                    unreadable[row[0]] = f"{table.name} {'.'.join(map(str, key))}: {error}"
    return found


def _fields(
    kind: type[_Scheduled], decoders: Mapping[str, Callable[[str], Any]], rows: Sequence[Row[Any]]
) -> list[dict[str, Any]]:
    names = tuple(kind.model_fields)
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for name, decode in decoders.items():
        for fields in found:
            fields[name] = decode(fields[name])
    return found
