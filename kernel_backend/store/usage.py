"""Read slot usage of attempts, and store the scheduler's reservation records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, Text, case, cast, delete, func, insert, or_, select

from kernel_backend.model.cluster.usage import ReservationRecord, UsageInterval
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import Outcome
from kernel_backend.store.quotas import slots_of
from kernel_backend.store.tables import attempts, experiments, from_row, reservation_records, rows_of, to_row

_OUTCOMES = frozenset(Outcome)


def read_usage_intervals(db: Connection, since: float) -> list[UsageInterval]:
    """Return when attempts held slots, oldest first, for open attempts and those that ended after `since`."""
    here, whose = attempts.c, experiments.c
    query = (
        select(
            here.experiment,
            here.trial,
            here.number,
            whose.owner,
            whose.group,
            cast(here.placement, Text).label("placement"),
            func.coalesce(here.granted_at, here.ended_at, here.created_at).label("begun"),
            here.ended_at,
            here.outcome,
        )
        .join(experiments, whose.number == here.experiment)
        .where(or_(here.ended_at.is_(None), here.ended_at > since))
        .order_by(here.created_at, here.experiment, here.trial, here.number)
    )
    return [
        UsageInterval(
            AttemptId(row.experiment, row.trial, row.number),
            row.owner,
            row.group,
            slots_of(row.placement),
            row.begun,
            row.ended_at,
            Outcome(row.outcome) if row.outcome in _OUTCOMES else None,  # an unknown one is treated as missing
        )
        for row in db.execute(query)
    ]


def read_slot_seconds(db: Connection, number: int, at: float) -> float:
    """Return the slot-seconds that an experiment's trials have used up to the time `at`."""
    here = attempts.c
    seconds = func.coalesce(here.ended_at, at) - _granted(at)
    # Grouped by placement, of which there are few: a budget is checked in every round.
    placement = cast(here.placement, Text).label("placement")
    query = select(placement, func.sum(case((seconds > 0, seconds), else_=0.0))).where(here.experiment == number)
    return float(sum(slots_of(placement) * seconds for placement, seconds in db.execute(query.group_by(placement))))


def read_trial_seconds(db: Connection, number: int, at: float, trials: Collection[int] | None) -> dict[int, float]:
    """Return the slot-seconds that an experiment's trials have used up to the time `at`, by index.

    Only trials that have had an attempt are included; of these the ones in `trials`, or all.
    """
    here = attempts.c
    placement = cast(here.placement, Text)
    query = select(here.trial, placement, _granted(at), here.ended_at).where(here.experiment == number)
    if trials is not None:
        query = query.where(here.trial.in_(trials))
    found: dict[int, float] = defaultdict(float)
    for trial, placed, begun, ended in db.execute(query.order_by(here.trial)):
        found[trial] += slots_of(placed) * max(0.0, (at if ended is None else ended) - begun)
    return dict(found)


def _granted(at: float) -> ColumnElement[float]:
    """Return the SQL expression for the time at which an attempt got its slots.

    An attempt that waits in an external queue, such as Slurm's, holds none; the time is then that of its end, or `at`.
    """
    return func.coalesce(attempts.c.granted_at, attempts.c.ended_at, at)


def read_reservations(db: Connection) -> list[ReservationRecord]:
    """Return all stored reservations and queue positions."""
    return [from_row(ReservationRecord, row) for row in db.execute(rows_of(ReservationRecord, reservation_records))]


def save_reservations(db: Connection, made: Sequence[ReservationRecord], gone: Sequence[ReservationRecord]) -> None:
    """Store the reservation records `made`, replacing those with the same keys, and delete the records `gone`."""
    here = reservation_records.c
    for each in (*made, *gone):
        db.execute(
            delete(reservation_records).where(
                here.experiment == each.experiment, here.trial == each.trial, here.nth == each.nth
            )
        )
    if made:
        db.execute(insert(reservation_records), [to_row(each) for each in made])
