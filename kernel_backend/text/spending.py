"""Format slot-hours, energy and cost as the rows of a table and as lines."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.cluster.accounting import Spending, SpendingReport
from kernel_backend.model.views.slowness import percent

UNKNOWN = "unknown"


def spending_head(report: SpendingReport) -> list[str]:
    """Return the column names for a report on slot-hours, energy and cost; without prices there is no cost column."""
    cost = ["cost"] if report.total.cost is not None else []
    return [report.by, "slot-hours", "lost", "repeated", "waiting", "pruned", "kWh", *cost]


def spending_rows(report: SpendingReport, most: int) -> list[list[str]]:
    """Return the first `most` rows of a report (of months: the last), and a row with the total if there are several."""
    shown: Sequence[Spending] = report.rows[:most] if report.by != "month" else report.rows[-most:]
    rows = [*shown, *([report.total] if len(report.rows) > 1 else [])]
    return [_row(each, report.total.cost is not None) for each in rows]


def spending_lines(report: SpendingReport, most: int) -> list[str]:
    """Return lines below a table of `most` rows: how many rows are left out, and for how much the energy is known."""
    total, more = report.total, len(report.rows) - most
    lines = [f"{more} more: see --csv or --limit"] if more > 0 else []
    if total.kwh is not None and total.measured_hours < 0.95 * total.slot_hours:
        lines.append(f"the energy is known of {percent(total.measured_hours / total.slot_hours)} of the slot-hours")
    return lines


def _row(row: Spending, priced: bool) -> list[str]:
    name = f"#{row.name} {row.title}" if row.title else row.name
    hours = [row.slot_hours, row.lost_hours, row.repeated_hours, row.waiting_hours, row.pruned_hours]
    cost = [UNKNOWN if row.cost is None else f"{row.cost:.2f}"] if priced else []
    return [name, *(f"{each:.2f}" for each in hours), UNKNOWN if row.kwh is None else f"{row.kwh:.3g}", *cost]
