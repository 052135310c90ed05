"""Move `%%dlsubmit` and `%%dlrun` above comments and empty lines: IPython requires a cell magic on the first line."""

from __future__ import annotations

_MAGICS = ("%%dlsubmit", "%%dlrun")


def magic_first(lines: list[str]) -> list[str]:
    """Return a cell's lines with its magic moved above the comments and empty lines that precede it.

    An empty line takes its position, so that the lines of the body count as in the cell. For IPython's
    `input_transformers_cleanup`.
    """
    at = _place(lines)
    return [lines[at], *lines[:at], "\n", *lines[at + 1 :]] if at else lines


def first_line(cell: str) -> int:
    """Return the line of the cell where the body that IPython passes to the magic begins."""
    return 1 if _place(cell.split("\n")) else 2


def _place(lines: list[str]) -> int:
    """Return the index of the line with the magic; 0 if other code precedes that line or the cell has none."""
    for index, line in enumerate(lines):
        if line.startswith(_MAGICS) and line.split()[0] in _MAGICS:
            return index
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return 0
