"""Move `%%dlsubmit` and `%%dlrun` above comments and empty lines, as IPython wants a cell magic in the first line."""

from __future__ import annotations

_MAGICS = ("%%dlsubmit", "%%dlrun")


def magic_first(lines: list[str]) -> list[str]:
    """Return a cell's lines with its magic moved above the comments and empty lines before it.

    An empty line takes the magic's former place, so that line numbers of the body do not change. IPython calls this
    function for each cell, as one of its `input_transformers_cleanup`.
    """
    at = _place(lines)
    return [lines[at], *lines[:at], "\n", *lines[at + 1 :]] if at else lines


def first_line(cell: str) -> int:
    """Return the line of the cell at which its body begins, which is the text that IPython passes to the cell magic."""
    return 1 if _place(cell.split("\n")) else 2


def _place(lines: list[str]) -> int:
    """Return the index of the line with the magic; 0 if there is no magic, or if code comes before it."""
    for index, line in enumerate(lines):
        if line.startswith(_MAGICS) and line.split()[0] in _MAGICS:
            return index
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return 0
