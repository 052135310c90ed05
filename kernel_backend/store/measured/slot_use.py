"""Store how attempts use their slots: GPU, CPU, memory and energy.

Each rank of an attempt has a record of the newest sample, with number 0, and records with higher numbers, each for one
period of time. The latter are the points of the curve over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, tuple_

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import LARGEST, LATEST, MEANS, QUANTITIES, DeliveredUse, SlotUse, StoredUse
from kernel_backend.model.states import HOLDING_SLOTS
from kernel_backend.store.tables import attempts, slot_use, trials

AT_ONCE = 400  # rows of one statement: databases limit the number of its parameters
_OF_SLOT = ("rank", "node", "device", "number")
_OF_USE = ("at", "seconds", *QUANTITIES)


def keep_use(db: Connection, key: AttemptId, slots: Sequence[DeliveredUse]) -> None:
    """Store records of how an attempt used its slots, replacing those with the same rank and number.

    Records of ranks that the attempt does not have are left out, as a user's process could fill the database with them.
    """
    here = slot_use.c
    owner = {"experiment": key.experiment, "trial": key.trial, "attempt": key.number}
    size = _size(db, key)
    rows = [*{(each.rank, each.number): _row(owner, each) for each in slots if each.rank < size}.values()]
    ours = [here[name] == value for name, value in owner.items()]
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        keys = [(row["rank"], row["number"]) for row in some]
        db.execute(delete(slot_use).where(*ours, tuple_(here.rank, here.number).in_(keys)))
        db.execute(insert(slot_use), some)


def read_use(db: Connection, number: int, trial: int) -> list[StoredUse]:
    """Return the records of how a trial's slots were used, ordered by attempt, rank and number."""
    here = slot_use.c
    query = select(slot_use).where(here.experiment == number, here.trial == trial)
    return [_read(row._mapping) for row in db.execute(query.order_by(here.attempt, here.rank, here.number))]


def total_use(db: Connection, number: int) -> SlotUse:
    """Return the use of all slots that an experiment held, as one record.

    Rates are means over the measured time of all slots; bytes and temperature are the largest values.
    """
    here = slot_use.c
    columns: list[ColumnElement[Any]] = [*map(_mean, MEANS), *(func.max(here[name]) for name in LARGEST)]
    columns += [func.coalesce(func.max(here.at), 0.0), func.coalesce(func.sum(here.seconds), 0.0)]
    row = db.execute(select(*columns).where(here.experiment == number, here.number > LATEST)).one()
    *values, at, seconds = row
    return SlotUse(at=at, seconds=seconds, **dict(zip((*MEANS, *LARGEST), values, strict=True)))


def latest_use(db: Connection, since: float, number: int | None) -> list[StoredUse]:
    """Return the newest sample of each rank of the trials that hold slots, if it was taken after `since`.

    `number` selects the trials of one experiment; None selects all.
    """
    here = slot_use.c
    query = _current(since).where(here.number == LATEST)
    if number is not None:
        query = query.where(here.experiment == number)
    return [_read(row._mapping) for row in db.execute(query)]


def recent_use(db: Connection, since: float) -> list[StoredUse]:
    """Return how the gangs that hold slots now have used them since the time `since`.

    For each rank there are the newest sample, and the records of the periods that ended after `since`.
    """
    return [_read(row._mapping) for row in db.execute(_current(since))]


def _current(since: float) -> Select[Any]:
    """Return a query for the records later than `since` of attempts that hold slots now."""
    here = slot_use.c
    return (
        select(slot_use)
        .join(trials, (trials.c.experiment == here.experiment) & (trials.c.index == here.trial))
        .where(trials.c.state.in_(HOLDING_SLOTS), here.attempt == trials.c.attempt)
        .where(here.at > since)
        .order_by(here.experiment, here.trial, here.rank, here.number)
    )


def forget_curves(db: Connection, number: int) -> None:
    """Reduce the records of how an experiment used its slots to one per rank and attempt, with only the mean power.

    The curves over time are lost; the energy used can still be computed.
    """
    here = slot_use.c
    key = [here.experiment, here.trial, here.attempt, here.rank]
    means = [_mean(name).label(name) for name in ("power", "cpu_power")]
    sums = [func.sum(here.seconds).label("seconds"), func.max(here.at).label("at")]
    query = select(*key, *means, *sums).where(here.experiment == number, here.number > LATEST).group_by(*key)
    blank: dict[str, Any] = {**dict.fromkeys(QUANTITIES), "number": 1, "node": "", "device": ""}
    rows = [blank | dict(row._mapping) for row in db.execute(query)]
    db.execute(delete(slot_use).where(here.experiment == number))
    if rows:
        db.execute(insert(slot_use), rows)


def _size(db: Connection, key: AttemptId) -> int:
    here = attempts.c
    query = select(here.placement).where(
        here.experiment == key.experiment, here.trial == key.trial, here.number == key.number
    )
    placement: list[dict[str, Any]] = db.execute(query).scalar_one_or_none() or []
    return sum(len(share["slots"]) for share in placement)


def _mean(name: str) -> ColumnElement[Any]:
    """Return the SQL expression of a quantity's mean over the time for which it is known; NULL if it never is."""
    column, seconds = slot_use.c[name], slot_use.c.seconds
    known = func.sum(seconds).filter(column.is_not(None))
    return func.sum(column * seconds) / func.nullif(known, 0.0)


def _row(owner: dict[str, int], slot: DeliveredUse) -> dict[str, Any]:
    return {**owner, **slot.model_dump(include={*_OF_SLOT}), **slot.use.model_dump()}


def _read(row: Any) -> StoredUse:
    use = SlotUse(**{name: row[name] for name in _OF_USE})
    slot = DeliveredUse(**{name: row[name] for name in _OF_SLOT}, use=use)
    return StoredUse(row["experiment"], row["trial"], row["attempt"], slot)
