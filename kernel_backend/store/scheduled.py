"""Read the scheduler's unfinished work: a few columns of perhaps 100,000 rows, each validated by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, Text, and_, or_, select, type_coerce

from kernel_backend.model.experiment import ScheduledExperiment
from kernel_backend.model.states import EXPERIMENT_ENDED, LIVE, ExperimentState, Hold, TrialState
from kernel_backend.model.trial import ScheduledTrial
from kernel_backend.store.base import Scheduled
from kernel_backend.store.tables import JsonText, RecordText, experiments, read_record, trials
from kernel_backend.store.transaction import get_experiment

OPEN_EXPERIMENT = [state for state in ExperimentState if state not in EXPERIMENT_ENDED]
TOGETHER = 1000  # rows that are checked at once
_Scheduled = TypeVar("_Scheduled", ScheduledExperiment, ScheduledTrial)


def restless() -> ColumnElement[bool]:
    """Select the trials that have not ended, without those that only a search holds."""
    here = trials.c
    return or_(here.state.in_(LIVE), and_(here.state == TrialState.PAUSED, here.holds != [Hold.SEARCH]))


def read_scheduled(db: Connection) -> Scheduled:
    """Read all unfinished work; an experiment with an unreadable record is left out, and reported."""
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
    if unreadable:
        found = [each for each in found if each.number not in unreadable]
        theirs = [each for each in theirs if each.experiment not in unreadable]
    return Scheduled(found, theirs, unreadable)


def _columns(kind: type[_Scheduled], table: Table) -> Select[Any]:
    """Select the columns of a record, JSON as its text: decoded with the row, a damaged one would hide all."""
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
    """Validate records in batches; where one of a batch cannot be read, each by itself."""
    names = tuple(kind.model_fields)
    decoders = [_decoder(table.c[name]) for name in names]
    check = TypeAdapter(list[kind]).validate_python  # type: ignore[valid-type]
    found: list[_Scheduled] = []
    for rows in db.execute(query).partitions(TOGETHER):
        try:
            found += check(_fields(names, decoders, rows))
        except (ValueError, TypeError):
            for row in rows:
                try:
                    found += check(_fields(names, decoders, [row]))
                except (ValueError, TypeError) as error:
                    key = row[:2] if table is trials else row[:1]
                    unreadable[row[0]] = f"{table.name} {'.'.join(map(str, key))}: {error}"
    return found


def _fields(
    names: Sequence[str], decoders: Sequence[Callable[[str], Any] | None], rows: Sequence[Row[Any]]
) -> list[dict[str, Any]]:
    columns = zip(*rows, strict=True)
    decoded = [
        values if decode is None else map(decode, values) for decode, values in zip(decoders, columns, strict=True)
    ]
    return [dict(zip(names, values, strict=True)) for values in zip(*decoded, strict=True)]
