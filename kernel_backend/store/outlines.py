"""Read summaries of trials: of all trials of a search, or only of those that have changed."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, case, select

from kernel_backend.model.states import TrialState
from kernel_backend.model.trial import Best
from kernel_backend.model.views.search_status import TrialSummary
from kernel_backend.store.tables import events, reports, trials


def read_outlines(db: Connection, number: int, indices: Collection[int] | None) -> list[TrialSummary]:
    """Return summaries of an experiment's trials by index: of those in `indices`, or of all."""
    here = trials.c
    failure = case((here.state == TrialState.FAILED, here.failure), else_=None)
    query = select(here.index, here.state, here.attempt, failure, here.best).where(here.experiment == number)
    if indices is not None:
        query = query.where(here.index.in_(indices))
    return [
        TrialSummary(index, TrialState(state), attempt, failed["type"] if failed else None, best and Best(**best))
        for index, state, attempt, failed, best in db.execute(query.order_by(here.index))
    ]


def touched_trials(db: Connection, number: int, after: int) -> set[int]:
    """Return the indices of an experiment's trials that may have changed since the message number `after`."""
    said, told = events.c, reports.c
    moved = select(said.trial).where(said.experiment == number, said.seq > after, said.trial.is_not(None))
    validated = select(told.trial).where(told.experiment == number, told.seq > after, told.kind == "validation")
    return set(db.execute(moved.union(validated)).scalars())
