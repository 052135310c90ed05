"""Two experiments beside each other, and a history of them, as lines and as MIME bundles."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_ext.views.tables import table
from kernel_backend.model.diff import Attribution, AttributionRow, Diff, Difference, HistoryEntry, Results
from kernel_backend.model.printable import harmless
from kernel_backend.text import counted, duration, metrics_text, number

_DIM = "var(--jp-content-font-color2, var(--vscode-descriptionForeground, #777))"
_LINE = "var(--jp-border-color2, var(--vscode-panel-border, #8884))"
_CODE = "var(--jp-code-font-family, monospace)"
_ADDED, _REMOVED = "var(--jp-success-color1, #388e3c)", "var(--jp-error-color1, #d32f2f)"
_CARD = f"border:1px solid {_LINE};border-radius:6px;padding:10px 14px;max-width:860px;line-height:1.5"
_ROW = "display:grid;grid-template-columns:9.5em 1fr;gap:2px 10px;padding:3px 0"
_BODY = "min-width:0;overflow-wrap:anywhere"
_COLOURS = {"+": _ADDED, "-": _REMOVED, "~": "var(--jp-warn-color1, #f57c00)", "@": _DIM, ".": _DIM}
_LINES = 60  # of a difference's details
_KIND = 17  # characters of a kind's column
NONE = "none: code, data, environment, seed and configuration are the same"
NO_BIT = " (changes no bit)"
HISTORY_HEAD = ("number", "name", "state", "age", "changed since", "what", "results")


def diff_bundle(diff: Diff) -> dict[str, str]:
    """What differs, the likeliest cause first, and what came of it; no scripts, every text escaped."""
    rows = [_row(_kind(each), _text(each)) for each in diff.differences]
    rows += [_row("not known", escape(each)) for each in diff.unknown]
    if not rows:
        rows = [_row("causes", NONE)]
    head = f"<div><b>#{diff.a}</b> and <b>#{diff.b}</b></div>"
    html = f'<div style="{_CARD}">{head}{"".join(rows)}{_row("results", _results(diff.results))}</div>'
    return {"text/plain": harmless("\n".join(diff_lines(diff))), "text/html": html}


def history_bundle(entries: Sequence[HistoryEntry], now: float) -> dict[str, str]:
    """What has changed from experiment to experiment, as a table."""
    return table(HISTORY_HEAD, [history_row(each, now) for each in entries], "no such experiments")


def _row(head: str, body: str) -> str:
    return f'<div style="{_ROW}"><div style="color:{_DIM}">{head}</div><div style="{_BODY}">{body}</div></div>'


def _kind(difference: Difference) -> str:
    return escape(difference.kind)


def _text(difference: Difference) -> str:
    text = escape(difference.text)
    if difference.harmless:
        return f'<span style="color:{_DIM}">{text}{NO_BIT}</span>'
    return text + _details(difference.detail)


def _details(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    body = "\n".join(
        f'<span style="color:{_COLOURS.get(line[:1], "inherit")}">{escape(line)}</span>'
        for line in shortened(lines, _LINES)
    )
    style = f"font-family:{_CODE};font-size:90%;margin:2px 0 4px;white-space:pre;overflow-x:auto"
    return f'<pre style="{style}">{body}</pre>'


def _results(results: Results) -> str:
    colour = {True: _ADDED, False: _REMOVED, None: "inherit"}[results.identical]
    verdict, *metrics = map(escape, results_lines(results))
    return "<br>".join([f'<span style="color:{colour}">{verdict}</span>', *metrics])


def results_lines(results: Results) -> list[str]:
    """The verdict, and each metric of both: `error  0.303 and 0.528`."""
    rows = [f"{name}  {_or_none(a)} and {_or_none(b)}" for name, (a, b) in results.metrics.items()]
    return [results.text, *rows]


def _or_none(value: float | None) -> str:
    return "none" if value is None else number(value)


def diff_lines(diff: Diff, detail: int = 40) -> list[str]:
    """Two experiments side by side: a line a difference with its kind before it, its details below, then the results.

    `detail` lines of each difference are shown at most.
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
    """The first lines, and how many more there are."""
    left = len(lines) - most
    return [*lines[:most], *([f"... {counted(left, 'line')} more"] if left > 0 else [])]


def history_row(entry: HistoryEntry, now: float) -> list[str]:
    """A row of the table of what has changed from experiment to experiment."""
    told = [each.text for each in entry.differences if not each.harmless]
    what = clipped("; ".join(told), 160) if told else "nothing" if entry.before else ""
    since = f"#{entry.before}" if entry.before else "(none before)"
    age = duration(max(0.0, now - entry.created_at))
    return [f"#{entry.number}", clipped(entry.name, 40), entry.state, age, since, what, metrics_text(entry.metrics)]


def clipped(text: str, most: int) -> str:
    """The text, or its beginning."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def attribution_head(found: Attribution) -> tuple[str, ...]:
    """The head of the table that `attribution_row` fills."""
    return "what", found.metric, "off", "experiment"


def attribution_row(row: AttributionRow) -> list[str]:
    """A training of the story: its label, value, distance from the baseline, and number."""
    off = "" if row.off is None else "0.0" if row.off == 0 else number(row.off)
    value = row.state if row.value is None else number(row.value)
    return [row.label, value, off, f"#{row.experiment}" if row.experiment else ""]


def attribution_lines(found: Attribution) -> list[str]:
    """What comes below the table: the last row beside the baseline, and what could not be put back."""
    verdict = [f"the last row and #{found.a}: {found.results.text}"] if found.results else []
    notes = [f"{row.label}: {row.note}" for row in found.rows if row.note]
    return [*verdict, *notes, *(f"cannot be put back: {text}" for text in found.beyond)]


def attribution_bundle(found: Attribution) -> dict[str, str]:
    """The story of `diff --attribute` as a table with its verdict."""
    made = table(attribution_head(found), [attribution_row(row) for row in found.rows])
    lines = attribution_lines(found)
    below = "".join(f"<div>{escape(line)}</div>" for line in lines)
    return {
        "text/plain": "\n".join([made["text/plain"], *map(harmless, lines)]),
        "text/html": made["text/html"] + below,
    }
