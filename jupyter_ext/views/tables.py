"""Render tables as plain text and as HTML, with all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kernel_backend.printable import harmless

_LINE = "var(--jp-border-color2, var(--vscode-panel-border, #8884))"
_CELL = f"text-align:left;padding:2px 14px 2px 0;border-bottom:1px solid {_LINE}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], empty: str = "nothing yet") -> dict[str, str]:
    """Return the MIME bundle of a table; `empty` is its text if there are no rows."""
    if not rows:
        return {"text/plain": empty, "text/html": f"<i>{escape(empty)}</i>"}
    return {"text/plain": rows_plain(head, rows), "text/html": rows_html(head, rows)}


def rows_plain(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as text, each column as wide as its widest cell."""
    lines = [list(map(harmless, line)) for line in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in padded)


def rows_html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML; a header row of empty texts is left out."""
    top = "".join(f'<th style="{_CELL};font-weight:600">{escape(text)}</th>' for text in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in row) + "</tr>" for row in rows
    )
    style = "border-collapse:collapse;margin:4px 0"
    return f'<table style="{style}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
