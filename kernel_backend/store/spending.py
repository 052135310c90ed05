"""Read the resources that attempts have used: slots over time, training time, repeated steps and energy."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Subquery, Text, and_, case, cast, func, or_, select

from kernel_backend.model.cluster.accounting import AttemptSpending, repeated_part
from kernel_backend.model.states import Outcome, TrialState
from kernel_backend.model.times import PARTS
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.store.quotas import slots_of
from kernel_backend.store.tables import attempts, experiments, rank_times, slot_use, trials

_FAULTS = frozenset({Outcome.FAILED, Outcome.LOST, Outcome.KILLED, Outcome.TIMEOUT})
_TRAINING = [part for part in PARTS if part != "stall"]


def read_spending(db: Connection, owner: str | None, since: float, until: float) -> list[AttemptSpending]:
    """Return the attempts that held slots between the times `since` and `until`, of one owner or of all.

    Attempts that have not ended count as ending at `until`.
    """
    here, whose, following = attempts.c, experiments.c, attempts.alias("following")
    times, energy = _times(), _energy()
    begun = func.coalesce(here.granted_at, here.ended_at, until)
    query = (
        select(
            here.experiment,
            whose.name.label("title"),
            whose.owner,
            whose.group,
            here.pool,
            cast(here.placement, Text).label("placement"),
            begun.label("begun"),
            func.coalesce(here.ended_at, until).label("ended"),
            here.outcome,
            here.resume_from,
            following.c.number.label("following"),
            following.c.resume_from.label("resumed"),
            trials.c.state,
            times.c.steps,
            times.c.trained,
            energy.c.joules,
            energy.c.measured,
        )
        .join(experiments, whose.number == here.experiment)
        .join(trials, and_(trials.c.experiment == here.experiment, trials.c.index == here.trial))
        .outerjoin(following, _same(following.c, here, 1))
        .outerjoin(times, _same(times.c, here))
        .outerjoin(energy, _same(energy.c, here))
        .where(begun < until, or_(here.ended_at.is_(None), here.ended_at > since))
    )
    if owner is not None:
        query = query.where(whose.owner == owner)
    return [_read(row) for row in db.execute(query)]


def _read(row: Any) -> AttemptSpending:
    repeated = 0.0
    if row.outcome in _FAULTS and row.following is not None:
        repeated = repeated_part(checkpoint_step(row.resume_from), row.steps, checkpoint_step(row.resumed))
    return AttemptSpending(
        experiment=row.experiment,
        title=row.title,
        owner=row.owner,
        group=row.group,
        pool=row.pool,
        slots=slots_of(row.placement),
        begun=row.begun,
        ended=max(row.begun, row.ended),
        pruned=row.state == TrialState.PRUNED,
        repeated=repeated,
        trained=row.trained,
        joules=row.joules,
        measured=row.measured or 0.0,
    )


def _same(one: Any, other: Any, more: int = 0) -> Any:
    """Return the SQL condition that rows of two tables, given by their columns, belong to the same attempt.

    With `more` = 1, `one` must belong to the attempt that follows the attempt of `other`.
    """
    number = one.number if "number" in one else one.attempt
    return and_(one.experiment == other.experiment, one.trial == other.trial, number == other.number + more)


def _times() -> Subquery:
    """Return a subquery for the steps of each attempt, and the seconds of training summed over its ranks."""
    here = rank_times.c
    trained = sum((here[part] for part in _TRAINING[1:]), here[_TRAINING[0]])
    columns = [func.max(here.steps).label("steps"), func.sum(trained).label("trained")]
    attempt = [here.experiment, here.trial, here.attempt]
    return select(*attempt, *columns).group_by(*attempt).subquery("times")


def _energy() -> Subquery:
    """Return a subquery for the joules that each attempt used, and the slot-seconds for which they were measured."""
    here = slot_use.c
    known = or_(here.power.is_not(None), here.cpu_power.is_not(None))
    watts = func.coalesce(here.power, 0.0) + func.coalesce(here.cpu_power, 0.0)
    joules = func.sum(case((known, watts * here.seconds))).label("joules")
    measured = func.sum(case((known, here.seconds), else_=0.0)).label("measured")
    attempt = [here.experiment, here.trial, here.attempt]
    return select(*attempt, joules, measured).where(here.number > 0).group_by(*attempt).subquery("energy")
