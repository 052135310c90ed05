"""Report all problems of a capture at once, each with its cell and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.makers import maker
from jupyter_ext.capture.missing import OF_NOTEBOOKS
from jupyter_ext.capture.slice import Slice


@dataclass(frozen=True)
class Problem:
    """Reason why a cell cannot be submitted: the variable's name, the cell, and a message with advice."""

    code: str
    name: str
    cell: int | None
    message: str


def is_experiment(value: object) -> bool:
    """Return True if a value is a Job. The name of its class decides, as importing Job here would be circular."""
    return type(value).__module__ == "jupyter_ext.job.job"


def cell_of(place: str) -> int | None:
    """Return the cell number in a location such as `cell [4] line 2`; None for a location in a file."""
    found = re.match(r"cell \[(\d+)\]", place)
    return int(found[1]) if found else None


def problems(
    executed: Executed, sliced: Slice, missing: Sequence[str], namespace: Mapping[str, object] | None, line: int
) -> Iterator[Problem]:
    """Yield a problem for each needed name that a magic created or that nothing binds, and for each call of `input()`.

    `missing` has the names that nothing binds. `line` is the line of the submitted cell at which its text below the
    magic begins.
    """
    for time in sorted(sliced.needed):
        for name in sorted(executed.statements[time].magics - sliced.captured):
            yield _made_by_magic(name, executed, time)
    for time in sliced.history.prompting:
        if time in sliced.needed:
            yield _asked(executed, time)
    for name in sorted(missing):
        user = _user(name, sliced)
        cell, mine = executed.cell(user), user >= executed.start
        who = "this cell" if mine else f"cell [{cell.number}], which this cell needs,"
        at = executed.statements[user].start + (line - 1 if mine else 0)
        yield Problem(
            "undefined", name, cell.number, f"{who} uses '{name}' (line {at}), {_why(name, executed, namespace, user)}"
        )


def _asked(executed: Executed, time: int) -> Problem:
    cell, mine = executed.cell(time), time >= executed.start
    names = sorted(executed.statements[time].binds)
    what = "this cell" if mine else f"cell [{cell.number}] line {executed.statements[time].start}, which is needed,"
    way_out = f"Write the answer down, or add --capture {','.join(names)}." if names and not mine else "Write it down."
    return Problem("input", ",".join(names), cell.number, f"{what} asks with input(), and a job has nobody. {way_out}")


def _made_by_magic(name: str, executed: Executed, time: int) -> Problem:
    number, magics = executed.cell(time).number, executed.parsed[executed.index(time)].magics
    statement = executed.statements[time]
    inside = [magic.text for magic in magics if statement.start <= magic.line <= statement.end]
    text = next((text for text in inside if name in text), executed.text(time))
    way_out = f"Write it in Python, or add --capture {name}." if name in statement.binds else "Write it in Python."
    message = f"this cell uses '{name}', made by '{text}' in cell [{number}], which a job cannot repeat. {way_out}"
    return Problem("magic", name, number, message)


def _user(name: str, sliced: Slice) -> int:
    """Return the index of the last needed statement that uses (reads) a name; if none does, of the last statement."""
    users = [t for t in sliced.needed if name in sliced.history.executed[t].later | sliced.history.executed[t].now]
    return max(users, default=sliced.end - 1)


def _why(name: str, executed: Executed, namespace: Mapping[str, object] | None, user: int) -> str:
    if name in OF_NOTEBOOKS:
        return "which exists only in a notebook. Leave it out, or keep it in another cell."
    for statement, number in reversed(executed.unfinished):
        if name in statement.binds:
            return f"which cell [{number}] did not come to: it failed before. Repair and run it."
    if (found := maker(name, executed)) is not None:
        text, made_in = found
        return (
            f"which no executed cell defines. If '{text}' in cell [{made_in}] makes it: "
            f"a job cannot repeat that. Write it in Python, or add --capture {name}."
        )
    value = (namespace or {}).get(name)
    if is_experiment(value):
        made = ",".join(sorted(executed.statements[user].binds)) if user < executed.start else ""
        way_out = (
            f"Add --capture {made}" if made else f"Write net = {name}.load() in another cell and add --capture net"
        )
        return f"an experiment, which a job cannot reach. {way_out}."
    if value is None:
        return "which no executed cell defines. Run a cell that makes it, or make it in this cell."
    held = f"(the notebook holds a {type(value).__name__} of that name)"
    return f"which no executed cell defines {held}. Run a cell that makes it, or add --capture {name}."
