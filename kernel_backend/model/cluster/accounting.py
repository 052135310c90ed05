"""Compute slot-hours, lost slot-hours, energy and cost from attempts: records and pure functions."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record

By = Literal["user", "group", "month", "experiment"]
BY: tuple[By, ...] = get_args(By)
ALL = "all"
_HOUR = 3600.0
_JOULES_PER_KWH = 3.6e6

_Amount = Annotated[FiniteFloat, Field(ge=0)]


class Spending(Record):
    """Slot-hours, energy and cost of some attempts.

    A lost slot-hour is counted in exactly one of `repeated_hours`, `waiting_hours` and `pruned_hours`.
    """

    name: str  # of the user, group or month (2026-11), or the number of the experiment
    title: str = ""  # name of the experiment
    slot_hours: _Amount = 0.0
    repeated_hours: _Amount = 0.0  # slot-hours of steps that were taken again after a fault
    waiting_hours: _Amount = 0.0  # slot-hours without training: starting, waiting for a decision of a search
    pruned_hours: _Amount = 0.0  # slot-hours of trials that their search has pruned
    kwh: _Amount | None = None  # None: unknown
    measured_hours: _Amount = 0.0  # slot-hours whose energy is known
    cost: _Amount | None = None  # at today's prices; None: no pool of these attempts has a price

    @property
    def lost_hours(self) -> float:
        """Return the lost slot-hours: those with repeated steps, without training, or of pruned trials."""
        return self.repeated_hours + self.waiting_hours + self.pruned_hours


class SpendingReport(Record):
    """Slot-hours, energy and cost of the attempts in a period, summed by user, group, month or experiment."""

    by: By
    since: FiniteFloat | None = None  # None: since the first experiment
    until: FiniteFloat
    rows: tuple[Spending, ...] = ()  # months in order of time, others by slot-hours
    total: Spending


class AttemptSpending(NamedTuple):
    """Slots, time and energy of one attempt, and what of it was lost. Unknown values are None."""

    experiment: int
    title: str
    owner: str
    group: str
    pool: str
    slots: int
    begun: float  # when it got its slots
    ended: float
    pruned: bool = False
    repeated: float = 0.0  # fraction of its training that was repeated by the next attempt
    trained: float | None = None  # seconds of training, summed over ranks; None: unknown
    joules: float | None = None
    measured: float = 0.0  # slot-seconds whose energy is known


def repeated_part(first: int, steps: int | None, resumed: int | None) -> float:
    """Return the fraction of an attempt's steps that the next attempt repeated.

    The attempt began after step `first` and took `steps` steps (None: unknown), and the next one resumed at step
    `resumed` (None: there is none).

    Examples
    --------
    >>> repeated_part(10, 40, 30), repeated_part(10, 40, 50), repeated_part(0, None, 0)
    (0.5, 0.0, 0.0)
    """
    if resumed is None or not steps:
        return 0.0
    return min(1.0, max(0.0, (first + steps - resumed) / steps))


def account(
    attempts: Iterable[AttemptSpending], by: By, prices: Mapping[str, float], since: float | None, until: float
) -> SpendingReport:
    """Sum up the slot-hours, energy and cost of attempts from `since` (None: from the first attempt) to `until`.

    The report has one row for each user, group, month or experiment, as `by` says. `prices` has the price of a
    slot-hour by pool; the cost of attempts in other pools is unknown (None).
    """
    rows: dict[str, Spending] = {}
    total = Spending(name=ALL)
    for attempt in attempts:
        for month, fraction in _months(attempt, since, until):
            spent = _spent(attempt, fraction, prices.get(attempt.pool))
            name = {"user": attempt.owner, "group": attempt.group, "month": month}.get(by, str(attempt.experiment))
            title = attempt.title if by == "experiment" else ""
            rows[name] = _added(rows.get(name, Spending(name=name, title=title)), spent)
            total = _added(total, spent)
    ordered = sorted(rows.values(), key=lambda row: row.name if by == "month" else -row.slot_hours)
    return SpendingReport(by=by, since=since, until=until, rows=tuple(ordered), total=total)


def _spent(attempt: AttemptSpending, fraction: float, price: float | None) -> Spending:
    """Return the slot-hours, energy and cost of a fraction (0 to 1) of an attempt's time.

    `price` is the price of one slot-hour; with None the cost is None, too.
    """
    held = attempt.slots * (attempt.ended - attempt.begun) / _HOUR
    trained = held if attempt.trained is None else min(held, attempt.trained / _HOUR)
    hours = fraction * held
    return Spending(
        name="",
        slot_hours=hours,
        repeated_hours=0.0 if attempt.pruned else fraction * trained * attempt.repeated,
        waiting_hours=0.0 if attempt.pruned else fraction * (held - trained),
        pruned_hours=hours if attempt.pruned else 0.0,
        kwh=None if attempt.joules is None else fraction * attempt.joules / _JOULES_PER_KWH,
        measured_hours=fraction * attempt.measured / _HOUR,
        cost=None if price is None else hours * price,
    )


_SUMMED = ("slot_hours", "repeated_hours", "waiting_hours", "pruned_hours", "kwh", "measured_hours", "cost")


def _added(one: Spending, other: Spending) -> Spending:
    return one.model_copy(update={name: _sum(getattr(one, name), getattr(other, name)) for name in _SUMMED})


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


def _months(attempt: AttemptSpending, since: float | None, until: float) -> Iterator[tuple[str, float]]:
    """Yield each month (UTC) from `since` to `until` in which an attempt held slots.

    With it comes the fraction of the attempt's whole time that lies in this month.
    """
    whole = attempt.ended - attempt.begun
    at, end = max(attempt.begun, since or 0.0), min(attempt.ended, until)
    while whole > 0 and at < end:
        month = time.gmtime(at)
        following = min(end, _next_month(month.tm_year, month.tm_mon))
        yield f"{month.tm_year}-{month.tm_mon:02d}", (following - at) / whole
        at = following


def _next_month(year: int, month: int) -> float:
    return float(calendar.timegm((year + month // 12, month % 12 + 1, 1, 0, 0, 0)))
