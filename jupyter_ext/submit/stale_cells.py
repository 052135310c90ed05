"""Find cells that the user edited after running them, by comparison with the notebook's file.

What is submitted is the text that was executed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from jupyter_ext.capture import Cell

_LARGEST = 32 * 2**20  # bytes of a notebook's file that are read: outputs may be huge


def stale_cells(path: str | None, cells: Sequence[Cell], needed: Collection[int], started: float = 0.0) -> list[str]:
    """Return a warning for each needed cell (by number) whose text in the notebook's file is not what was executed.

    There are no warnings if the file is unknown, unreadable or too large, or was saved before `started`, the time of
    the kernel's first cell. A cell that ran after the file was saved is skipped, as its number is not in the file.
    Unsaved edits are not detected.
    """
    saved = dict(_saved(path, started)) if path else {}
    ran = {cell.number: cell.text for cell in cells if cell.number is not None}
    return [
        f"cell [{number}] was edited after it ran: what it said when it ran is submitted"
        for number in sorted(needed)
        if number in ran and number in saved and _plain(saved[number]) != _plain(ran[number])
    ]


def _saved(path: str, started: float) -> Iterator[tuple[int, str]]:
    """Yield number and text of the code cells in a notebook's file; numbers that occur twice are left out."""
    try:
        file = Path(path)
        file = file if file.is_file() else Path(file.name)  # a server reports the path relative to its own folder
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
