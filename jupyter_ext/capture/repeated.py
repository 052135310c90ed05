"""What of the earlier cells runs again in every job, where a person may not expect it or not in the same way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from jupyter_ext.capture.cells import magics_run
from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.facts import FunctionNode

_TRAINS = re.compile(r"\.(fit|backward)\(")
_LONG = 5.0  # seconds
_DEFINES = FunctionNode | ast.ClassDef | ast.Import | ast.ImportFrom


def repeated(executed: Executed, taken: Sequence[int]) -> Iterator[str]:
    """Sentences about statements that a job needs, given by their times."""
    told: set[int | None] = set()
    working = [time for time in taken if _works(executed, time)]
    for time in working:
        cell, statement = executed.cell(time), executed.statements[time]
        if cell.number in told:
            continue
        if _TRAINS.search(executed.text(time)):
            yield f"cell [{cell.number}] line {statement.start} trains something, and runs again in every job"
            told.add(cell.number)
        elif (cell.seconds or 0) > _LONG:
            yield f"cell [{cell.number}] took {cell.seconds:.0f} s, and what is needed of it runs again in every job"
            told.add(cell.number)
    yield from _elsewhere(executed, working)


def _elsewhere(executed: Executed, working: Sequence[int]) -> Iterator[str]:
    """A notebook may change its folder between two cells; a job has one, which is the last of these."""
    cells = list(zip(executed.cells, executed.parsed, strict=True))
    moves = [(index, each) for index, cell in enumerate(cells) for each in magics_run(*cell) if each.name == "cd"]
    if not moves:
        return
    last, magic = moves[-1]
    before = [time for time in working if executed.index(time) < last and _calls_with_a_text(executed, time)]
    if before:
        first, other = executed.cell(before[0]).number, executed.cells[last].number
        yield (
            f"cell [{first}] ran before {magic.text} in cell [{other}]: a job runs all of it in the folder of now, so "
            "that relative paths may lead elsewhere"
        )


def _works(executed: Executed, time: int) -> bool:
    """Whether it does more than to define or import something."""
    return not all(isinstance(node, _DEFINES) for node in executed.statements[time].nodes)


def _calls_with_a_text(executed: Executed, time: int) -> bool:
    """Whether it may open a file by name."""
    calls = [each for node in executed.statements[time].nodes for each in ast.walk(node) if isinstance(each, ast.Call)]
    given = [value for each in calls for value in (*each.args, *(keyword.value for keyword in each.keywords))]
    return any(isinstance(value, ast.Constant | ast.JoinedStr) and not _is_number(value) for value in given)


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not isinstance(value.value, str)
