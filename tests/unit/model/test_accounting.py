"""Test sums of slot-hours, lost slot-hours, energy and cost."""

from __future__ import annotations

import calendar
from typing import Any

import pytest

from kernel_backend.model.cluster.accounting import AttemptSpending, account, repeated_part
from kernel_backend.text.csv_export import spending_csv
from kernel_backend.text.spending import spending_head, spending_lines, spending_rows

HOUR = 3600.0
NOVEMBER, DECEMBER = (float(calendar.timegm((2026, month, 1, 0, 0, 0))) for month in (11, 12))


def attempt(hours: float = 1.0, begun: float = NOVEMBER, **fields: Any) -> AttemptSpending:
    values = {"experiment": 1, "title": "digits", "owner": "dave", "group": "vision", "pool": "local", "slots": 2}
    return AttemptSpending(**(values | {"begun": begun, "ended": begun + hours * HOUR} | fields))


def report(*attempts: AttemptSpending, by: Any = "user", since: float | None = None, **prices: float) -> Any:
    return account(attempts, by, prices, since, DECEMBER + 1e6)


def test_slot_hours_energy_and_cost_are_added_up() -> None:
    found = report(
        attempt(3.0, joules=3.6e6, measured=6 * HOUR), attempt(1.0, experiment=2), attempt(owner="eve"), local=0.5
    )
    dave, eve = found.rows
    assert (dave.name, dave.slot_hours, dave.kwh, dave.measured_hours, dave.cost) == ("dave", 8.0, 1.0, 6.0, 4.0)
    assert (eve.slot_hours, eve.kwh, eve.cost) == (2.0, None, 1.0)
    assert (found.total.slot_hours, found.total.kwh, found.total.cost) == (10.0, 1.0, 5.0)


def test_each_lost_slot_hour_counts_once() -> None:
    (row,) = report(attempt(2.0, repeated=0.5, trained=3.0 * HOUR)).rows
    assert (row.waiting_hours, row.repeated_hours, row.pruned_hours, row.lost_hours) == (1.0, 1.5, 0.0, 2.5)
    (row,) = report(attempt(2.0, repeated=0.5, trained=3.0 * HOUR, pruned=True)).rows
    assert (row.waiting_hours, row.repeated_hours, row.pruned_hours, row.lost_hours) == (0.0, 0.0, 4.0, 4.0)


def test_without_known_times_nothing_counts_as_lost() -> None:
    assert report(attempt(trained=None)).total.lost_hours == 0.0
    assert report(attempt(trained=1e9)).total.lost_hours == 0.0


def test_an_attempt_over_the_end_of_a_month_is_split() -> None:
    found = report(attempt(4.0, begun=DECEMBER - HOUR, joules=4e6, pruned=True), by="month")
    assert [(row.name, row.slot_hours, row.pruned_hours) for row in found.rows] == [
        ("2026-11", pytest.approx(2.0), pytest.approx(2.0)),
        ("2026-12", pytest.approx(6.0), pytest.approx(6.0)),
    ]
    assert found.rows[0].kwh == pytest.approx(1e6 / 3.6e6)


def test_only_the_time_asked_for_counts() -> None:
    (row,) = report(attempt(4.0), since=NOVEMBER + HOUR, by="group").rows
    assert (row.name, row.slot_hours) == ("vision", 6.0)
    assert report(attempt(4.0), since=DECEMBER).rows == ()
    assert report(attempt(0.0)).rows == ()


@pytest.mark.parametrize(
    ("first", "steps", "resumed", "part"),
    [(0, 50, 40, 0.2), (10, 40, 10, 1.0), (10, 40, 60, 0.0), (10, 40, None, 0.0), (10, None, 10, 0.0), (0, 0, 0, 0.0)],
)
def test_steps_after_the_checkpoint_are_repeated(first: int, steps: int | None, resumed: int | None, part: float):
    assert repeated_part(first, steps, resumed) == pytest.approx(part)


def test_a_report_is_a_table_with_a_total_and_csv() -> None:
    found = report(attempt(joules=3.6e6, measured=HOUR), attempt(experiment=2, title="=x"), by="experiment", local=2.0)
    assert spending_head(found)[-2:] == ["kWh", "cost"]
    assert spending_rows(found, 20) == [
        ["#1 digits", "2.00", "0.00", "0.00", "0.00", "0.00", "1", "4.00"],
        ["#2 =x", "2.00", "0.00", "0.00", "0.00", "0.00", "unknown", "4.00"],
        ["all", "4.00", "0.00", "0.00", "0.00", "0.00", "1", "8.00"],
    ]
    assert spending_lines(found, 1) == [
        "1 more: see --csv or --limit",
        "the energy is known of 25 % of the slot-hours",
    ]
    head, first, second = spending_csv(found).splitlines()
    assert head == "experiment,title,slot_hours,repeated_hours,waiting_hours,pruned_hours,kwh,measured_hours,cost"
    assert first == "1,digits,2.0,0.0,0.0,0.0,1.0,1.0,4.0"
    assert second == "2,'=x,2.0,0.0,0.0,0.0,,0.0,4.0"


def test_without_prices_there_is_no_cost() -> None:
    found = report(attempt())
    assert "cost" not in spending_head(found)
    assert spending_rows(found, 20) == [["dave", "2.00", "0.00", "0.00", "0.00", "0.00", "unknown"]]
