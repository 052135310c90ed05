"""Warn about earlier cells that are slow or train a model, since every job runs them again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.facts import FunctionNode

_TRAINS = re.compile(r"\.(fit|backward)\(")
_LONG = 5.0  # seconds
_DEFINES = FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom


def repeated(executed: Executed, taken: Sequence[int]) -> Iterator[str]:
    """Yield a warning for each cell that took long or trains a model, if a job runs some of its statements again.

    `taken` has the indices of the statements that the job runs.
    """
    told: set[int | None] = set()
    for time in taken:
        if not _works(executed, time):
            continue
        cell, statement = executed.cell(time), executed.statements[time]
        if cell.number in told:
            continue
        if _TRAINS.search(executed.text(time)):
            yield f"cell [{cell.number}] line {statement.start} trains something, and runs again in every job"
            told.add(cell.number)
        elif (cell.seconds or 0) > _LONG:
            yield f"cell [{cell.number}] took {cell.seconds:.0f} s, and what is needed of it runs again in every job"
            told.add(cell.number)


def _works(executed: Executed, time: int) -> bool:
    """Return True if a statement runs code other than definitions and imports."""
    return not all(isinstance(node, _DEFINES) for node in executed.statements[time].nodes)
