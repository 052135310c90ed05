"""Cells that were edited after they ran, by the notebook's file: what they said when they ran is submitted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from jupyter_ext.capture import Cell

_LARGEST = 32 * 2**20  # bytes of a notebook's file that are read: outputs may be huge


def stale_cells(path: str | None, cells: Sequence[Cell], needed: Collection[int], started: float = 0.0) -> list[str]:
    """A warning for each needed cell (by number) whose text in the notebook's file is another than the one that ran.

    Silent where the file is not known, not readable or too large, was saved before `started`, when the kernel ran its
    first cell, or before the cell ran: then it does not have its number. Of edits that are not saved nobody knows.
    """
    saved = dict(_saved(path, started)) if path else {}
    ran = {cell.number: cell.source for cell in cells if cell.number is not None}
    return [
        f"cell [{number}] was edited after it ran: what it said when it ran is submitted"
        for number in sorted(needed)
        if number in ran and number in saved and _plain(saved[number]) != _plain(ran[number])
    ]


def _saved(path: str, started: float) -> Iterator[tuple[int, str]]:
    """The code cells of a notebook's file by their execution counts, as far as each belongs to one cell alone."""
    try:
        file = Path(path)
        file = file if file.is_file() else Path(file.name)  # a server says the path from its own folder, we run in its
        status = file.stat()
        if status.st_size > _LARGEST or status.st_mtime < started:
            return
        notebook: Any = json.loads(file.read_text(encoding="utf-8"))
        cells = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    counts = Counter(cell.get("execution_count") for cell in cells)
    for cell in cells:
        number, source = cell.get("execution_count"), cell.get("source", "")
        if isinstance(number, int) and counts[number] == 1:  # of two the older is from another kernel
            yield number, "".join(source) if isinstance(source, list) else str(source)


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.splitlines()).strip()
