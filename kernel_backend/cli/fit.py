"""Fit the columns of a table into the width of a terminal: a line for each row, and no number cut."""

from __future__ import annotations

import re
from collections.abc import Sequence

ENOUGH = 15  # characters to which a column of text is shortened before another column is left out
LEAST = 6  # and after it
_NUMBER = re.compile(r"[-+]?[\d.,/%:]+(e[-+]?\d+)?|nan|[-+]?inf|")
_BORDER, _BETWEEN = 1, 3  # characters besides the cells: of the table, and of each column


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Return a table's head and rows with their texts shortened to fit into `width` characters, if they can be.

    Numbers are never shortened. If texts had to become too short, the columns that `spare` names are left out,
    the first of them first.
    """
    columns = [list(column) for column in zip(head, *rows, strict=True)]
    for name in spare:
        if _total([_least(column, ENOUGH) for column in columns]) > width:
            columns = [column for column in columns if column[0] != name]
    fits = _total([_least(column, ENOUGH) for column in columns]) <= width
    least = [_least(column, ENOUGH if fits else LEAST) for column in columns]
    widths = [_widest(column) for column in columns]
    while _total(widths) > width and any(each > low for each, low in zip(widths, least, strict=True)):
        longest = max(range(len(widths)), key=lambda place: widths[place] - least[place])
        widths[longest] -= 1
    shown = [[_shortened(cell, size) for cell in column] for column, size in zip(columns, widths, strict=True)]
    first, *others = map(list, zip(*shown, strict=True))
    return first, others


def _widest(column: Sequence[str]) -> int:
    return max(map(len, column))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * len(widths) + _BORDER


def _least(column: Sequence[str], text: int) -> int:
    """Return to how many characters a column may be shortened: that of numbers to its longest, others to `text`."""
    numbers = all(map(_NUMBER.fullmatch, column[1:]))
    return min(_widest(column), max(text, _widest(column[1:])) if numbers else text)


def _shortened(cell: str, width: int) -> str:
    """Return a text of at most `width` characters that ends with no part of a number or of one of several values."""
    if len(cell) <= width:
        return cell
    kept = cell[: width - 1]
    if "  " in kept:  # values, such as metrics
        kept = kept.rpartition("  ")[0]
    elif re.search(r"\d", kept.rpartition(" ")[2]):
        kept = kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip()}…"
