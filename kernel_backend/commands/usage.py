"""Define the verb usage: slot-hours, lost slot-hours, energy and cost."""

from __future__ import annotations

import calendar
import time

from kernel_backend.commands.answer import Answer, File, Table, Text
from kernel_backend.commands.verb import JSON, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.accounting import BY
from kernel_backend.text import spending as words
from kernel_backend.text.csv_export import spending_csv

ROWS = 20


def _usage(call: Call) -> Answer:
    options = call.arguments
    since, until = _month(options.month) if options.month else (None, None)
    report = call.client.spending(options.by, since, until)
    if options.csv:
        return Answer(report, [File(spending_csv(report))])
    rows = words.spending_rows(report, options.limit)
    table = Table(words.spending_head(report), rows, "no slots were used")
    return Answer(report, [table, Text(words.spending_lines(report, options.limit))])


def _month(text: str) -> tuple[float, float]:
    """Return the begin and end of a month such as 2026-11 (UTC), in seconds since the epoch; raises InvalidRequest."""
    try:
        month = time.strptime(text, "%Y-%m")
    except ValueError:
        raise InvalidRequest(f"--month {text}: write a month as 2026-11") from None
    year, number = month.tm_year, month.tm_mon
    ends = (year + number // 12, number % 12 + 1, 1, 0, 0, 0)
    return float(calendar.timegm(month)), float(calendar.timegm(ends))


USAGE = Verb(
    "usage",
    "show slot-hours, how many of them were lost, energy and cost: yours, for admins those of all users",
    _usage,
    (
        argument("--by", choices=BY, default="month", help="a row for each user, group, month or experiment [month]"),
        argument("--month", metavar="YYYY-MM", help="of this month alone (UTC) [all time]"),
        argument("--limit", metavar="N", type=count, default=ROWS, help=f"at most so many rows [{ROWS}]"),
        argument("--csv", action="store_true", help="all rows as CSV"),
        JSON,
    ),
    ("usage", "usage --by user --month 2026-11", "usage --by experiment --csv > usage.csv"),
    client=("spending",),
)
