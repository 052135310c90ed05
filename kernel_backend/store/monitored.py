"""Count experiments and attempts for monitoring systems, with one query per number."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from kernel_backend.model.cluster.monitored import StoreCounts
from kernel_backend.model.states import HOLDING_SLOTS
from kernel_backend.model.trial import Trial
from kernel_backend.store.tables import attempts, experiments, from_row, rows_of, trials


def read_counts(db: Connection, most: int) -> StoreCounts:
    """Return the numbers for monitoring systems, with at most `most` of the trials that hold slots."""
    states = (
        select(experiments.c.state, func.count())
        .where(experiments.c.deleted_at.is_(None))
        .group_by(experiments.c.state)
    )
    outcomes = (
        select(attempts.c.outcome, func.count()).where(attempts.c.ended_at.is_not(None)).group_by(attempts.c.outcome)
    )
    training = (
        rows_of(Trial, trials)
        .where(trials.c.state.in_(HOLDING_SLOTS))
        .order_by(trials.c.experiment, trials.c.index)
        .limit(most)
    )
    return StoreCounts(
        experiments={str(state): count for state, count in db.execute(states)},
        outcomes={str(outcome): count for outcome, count in db.execute(outcomes)},
        training=[from_row(Trial, row) for row in db.execute(training)],
    )
