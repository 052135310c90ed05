"""Render the comparison of two experiments as a MIME bundle."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kernel_backend.model.diff import Diff, Difference, Results
from kernel_backend.printable import harmless
from kernel_backend.text.compare import NO_BIT, NONE, diff_lines, results_lines, shortened

_DIM = "var(--jp-content-font-color2, var(--vscode-descriptionForeground, #777))"
_LINE = "var(--jp-border-color2, var(--vscode-panel-border, #8884))"
_CODE = "var(--jp-code-font-family, monospace)"
_ADDED, _REMOVED = "var(--jp-success-color1, #388e3c)", "var(--jp-error-color1, #d32f2f)"
_CARD = f"border:1px solid {_LINE};border-radius:6px;padding:10px 14px;max-width:860px;line-height:1.5"
_ROW = "display:grid;grid-template-columns:9.5em 1fr;gap:2px 10px;padding:3px 0"
_BODY = "min-width:0;overflow-wrap:anywhere"
_COLOURS = {"+": _ADDED, "-": _REMOVED, "~": "var(--jp-warn-color1, #f57c00)", "@": _DIM, ".": _DIM}
_LINES = 60  # lines of a difference's details


def diff_bundle(diff: Diff) -> dict[str, str]:
    """Return the MIME bundle of a comparison, without scripts, with all text escaped."""
    rows = [_row(_kind(each), _text(each)) for each in diff.differences]
    rows += [_row("not known", escape(each)) for each in diff.unknown]
    if not rows:
        rows = [_row("causes", NONE)]
    head = f"<div><b>#{diff.a}</b> and <b>#{diff.b}</b></div>"
    html = f'<div style="{_CARD}">{head}{"".join(rows)}{_row("results", _results(diff.results))}</div>'
    return {"text/plain": harmless("\n".join(diff_lines(diff))), "text/html": html}


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
