"""Store and sum the seconds that ranks spend in each part of their work, in one row per rank and attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.times import PARTS, AttemptTimes, RankTimes, Split
from kernel_backend.store.tables import rank_times


def keep_times(db: Connection, key: AttemptId, times: Sequence[RankTimes], at: float) -> None:
    """Replace the stored seconds that these ranks of an attempt spent in each part of their work.

    Final times are not replaced by others: a delivery that was under way when the ranks ended may arrive after them.
    """
    here = rank_times.c
    owner = {"experiment": key.experiment, "trial": key.trial, "attempt": key.number}
    ours = [here[name] == value for name, value in owner.items()]
    running = [each.rank for each in times if each.now is not None]
    stored = db.execute(select(here.rank, here.newest).where(*ours, here.rank.in_(running)))
    final = {rank for rank, newest in stored if newest["now"] is None}
    rows = {each.rank: _row(owner, each, at) for each in times if each.now is None or each.rank not in final}
    if rows:
        db.execute(delete(rank_times).where(*ours, here.rank.in_(list(rows))))
        db.execute(insert(rank_times), list(rows.values()))


def read_times(db: Connection, number: int, trial: int) -> list[AttemptTimes]:
    """Return the seconds that a trial's ranks spent in each part of their work, oldest attempt first."""
    here = rank_times.c
    query = select(rank_times).where(here.experiment == number, here.trial == trial)
    return [_read(row._mapping) for row in db.execute(query.order_by(here.attempt, here.rank))]


def total_times(db: Connection, number: int) -> Split:
    """Return the seconds spent in each part of an experiment's work, summed over trials, ranks and attempts."""
    here = rank_times.c
    sums = [func.coalesce(func.sum(here[name]), 0).label(name) for name in ("steps", *PARTS)]
    row = db.execute(select(*sums).where(here.experiment == number)).one()
    return _split(row._mapping)


def latest_times(db: Connection, number: int, since: float) -> list[RankTimes]:
    """Return the seconds that ranks of an experiment spent in each part of their work, if delivered after `since`."""
    here = rank_times.c
    query = select(rank_times).where(here.experiment == number, here.at > since)
    return [_read(row._mapping).times for row in db.execute(query.order_by(here.trial, here.rank))]


def _row(owner: dict[str, int], times: RankTimes, at: float) -> dict[str, Any]:
    parts: dict[str, float] = {part: times.whole.parts.get(part, 0.0) for part in PARTS}
    newest = times.model_dump(exclude={"whole"})
    return {**owner, "rank": times.rank, "at": at, "steps": times.whole.steps, **parts, "newest": newest}


def _read(row: Any) -> AttemptTimes:
    return AttemptTimes(row["attempt"], RankTimes.model_validate({**row["newest"], "whole": _split(row)}))


def _split(row: Any) -> Split:
    return Split(steps=row["steps"], parts={part: row[part] for part in PARTS if row[part]})
