"""Format the comparison of two experiments, a history, and the attribution of a difference to its causes."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.model.diff import Attribution, AttributionRow, Diff, HistoryEntry, Results
from kernel_backend.text import counted, duration, metrics_text, number

_KIND = 17  # width of the column of kinds
NONE = "none: code, data, environment, seed and configuration are the same"
NO_BIT = " (changes no bit)"
HISTORY_HEAD = ("number", "name", "state", "age", "changed since", "what", "results")


def results_lines(results: Results) -> list[str]:
    """Return a sentence on whether the results of two experiments are equal, and a line for each metric.

    Example of the second: `error 0.303 and 0.528`.
    """
    rows = [f"{name}  {_or_none(a)} and {_or_none(b)}" for name, (a, b) in results.metrics.items()]
    return [results.text, *rows]


def _or_none(value: float | None) -> str:
    return "none" if value is None else number(value)


def diff_lines(diff: Diff, detail: int = 40) -> list[str]:
    """Return lines on a comparison: each difference with its kind and details, then the results.

    At most `detail` lines of details are shown for each difference.
    """
    lines = [f"#{diff.a} and #{diff.b}"]
    for each in diff.differences:
        lines.append(f"  {each.kind:<{_KIND}}{each.text}{NO_BIT if each.harmless else ''}")
        lines += [f"  {'':<{_KIND}}  {line}" for line in shortened(each.detail, detail)]
    lines += [f"  {'not known':<{_KIND}}{each}" for each in diff.unknown]
    if len(lines) == 1:
        lines.append(f"  {'causes':<{_KIND}}{NONE}")
    heads = ["results", *[""] * len(diff.results.metrics)]
    lines += [f"  {head:<{_KIND}}{line}" for head, line in zip(heads, results_lines(diff.results), strict=True)]
    return lines


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """Return at most `most` lines, followed by `... N lines more` if there are more."""
    left = len(lines) - most
    return [*lines[:most], *([f"... {counted(left, 'line')} more"] if left > 0 else [])]


def history_row(entry: HistoryEntry, now: float) -> list[str]:
    """Return an experiment's row in the table of a history, with its changes since the previous experiment."""
    told = [each.text for each in entry.differences if not each.harmless]
    what = clipped("; ".join(told), 160) if told else "nothing" if entry.before else ""
    since = f"#{entry.before}" if entry.before else "(none before)"
    age = duration(max(0.0, now - entry.created_at))
    return [f"#{entry.number}", clipped(entry.name, 40), entry.state, age, since, what, metrics_text(entry.metrics)]


def clipped(text: str, most: int) -> str:
    """Return a text cut to at most `most` characters, with `...` at its end."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def attribution_head(found: Attribution) -> tuple[str, ...]:
    """Return the column names of the table that shows to which causes a difference of two results is attributed.

    `attribution_row` returns its rows, which are trainings.
    """
    return "what", found.metric, "off", "experiment"


def attribution_row(row: AttributionRow) -> list[str]:
    """Return the row of a training in the table of `attribution_head`.

    It has the label, the metric's value (or the training's state), the distance of this value from that of the first
    experiment, and the number of the experiment.
    """
    off = "" if row.off is None else "0.0" if row.off == 0 else number(row.off)
    value = row.state if row.value is None else number(row.value)
    return [row.label, value, off, f"#{row.experiment}" if row.experiment else ""]


def attribution_lines(found: Attribution) -> list[str]:
    """Return the lines below the table of `attribution_head`.

    They say whether the last training has the result of the first experiment, and which differences could not be undone
    for the trainings.
    """
    verdict = [f"the last row and #{found.a}: {found.results.text}"] if found.results else []
    notes = [f"{row.label}: {row.note}" for row in found.rows if row.note]
    return [*verdict, *notes, *(f"cannot be put back: {text}" for text in found.beyond)]
