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


def repeated(executed: Executed, taken: Sequence[int], *, loop: bool) -> Iterator[str]:
    """Yield a warning for each cell that took long or trains a model, if a job runs some of its statements again.

    `taken` has the indices of the statements that the job runs. If the submitted cell is a training `loop`, the job
    reports the steps of all loops.
    """
    works = [time for time in taken if _works(executed, time)]
    trainers = _training_functions([node for time in taken for node in executed.statements[time].nodes])
    told: set[int | None] = set()
    for time in works:
        cell, statement = executed.cell(time), executed.statements[time]
        trains = _TRAINS.search(executed.text(time)) or any(_calls(node) & trainers for node in statement.nodes)
        if trains and cell.number not in told:
            told.add(cell.number)
            steps = ": the curves begin with its steps, and what is best counts from this cell on" if loop else ""
            yield f"cell [{cell.number}] line {statement.start} trains something, and runs again in every job{steps}"
    for time in works:
        cell = executed.cell(time)
        if (cell.seconds or 0) > _LONG and cell.number not in told:
            told.add(cell.number)
            yield f"cell [{cell.number}] took {cell.seconds:.0f} s, and what is needed of it runs again in every job"


def _works(executed: Executed, time: int) -> bool:
    """Return True if a statement runs code other than definitions and imports."""
    return not all(isinstance(node, _DEFINES) for node in executed.statements[time].nodes)


def _training_functions(nodes: Sequence[ast.stmt]) -> set[str]:
    """Return the names of the functions among these definitions that call `backward`, directly or through others."""
    calls = {each.name: _calls(each) for each in nodes if isinstance(each, FunctionNode)}
    found: set[str] = set()
    more = {name for name, called in calls.items() if "backward" in called}
    while more - found:
        found |= more
        more = {name for name, called in calls.items() if called & found}
    return found


def _calls(node: ast.AST) -> set[str]:
    """Return the names of the functions that the code calls, and `backward` for a call of that method."""
    found = {each.func for each in ast.walk(node) if isinstance(each, ast.Call)}
    methods = {each.attr for each in found if isinstance(each, ast.Attribute)} & {"backward"}
    return methods | {each.id for each in found if isinstance(each, ast.Name)}
