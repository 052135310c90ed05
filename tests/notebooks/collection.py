"""Read the collection of unusual notebooks: `=== name`, cells between `---`, `>>> expression` whose value is compared.

Code between `+++` and the expression belongs to the submitted cell, above its function.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Notebook:
    """Cells in order of execution, and the expression that the submitted cell returns."""

    name: str
    cells: tuple[str, ...]
    expression: str
    head: str = ""

    @property
    def target(self) -> str:
        """Return the cell that is submitted."""
        return f"{self.head}def result(): return {self.expression}"


def notebooks(*themes: str) -> list[Notebook]:
    """Return the notebooks of these themes (names of files), or all, as far as this Python can parse them."""
    files = [FOLDER / f"{theme}.txt" for theme in themes] or sorted(FOLDER.glob("*.txt"))
    return [each for file in files for each in _read(file)]


def _read(file: Path) -> Iterator[Notebook]:
    for text in file.read_text(encoding="utf-8").split("=== ")[1:]:
        head, _, body = text.partition("\n")
        name, _, version = head.partition(" [python ")
        if version and sys.version_info < tuple(map(int, version.rstrip("]").split("."))):
            continue
        cells, _, expression = body.rstrip().rpartition("\n>>> ")
        cells, _, head = cells.partition("\n+++\n")
        yield Notebook(
            name, tuple(f"\n{cells}\n".strip("\n").split("\n---\n")), expression, f"{head}\n" if head else ""
        )
