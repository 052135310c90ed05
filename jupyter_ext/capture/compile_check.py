"""Check that the captured source compiles as a module; some code, such as top-level `await`, does not."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.problems import Problem, cell_of
from jupyter_ext.capture.statements import analyse

_WAITS = re.compile(r"await|async", re.IGNORECASE)


def uncompiled(
    executed: Executed, needed: Iterable[int], line: int, source: str, where: Callable[[int], str]
) -> Iterator[Problem]:
    """Yield problems if `source` is valid syntax that does not compile as a module, such as a top-level `return`.

    `source` is the module made of the needed statements; `needed` has their indices in `executed`. There is a problem
    for each needed statement that does not compile by itself; if all of them do, one for the whole source. `line` is
    the line of the submitted cell at which the text below its magic begins. `where` converts a line of `source` to a
    location in the notebook. If `source` cannot be parsed, nothing is yielded, as the parser of the training definition
    reports that.
    """
    whole = _error(source)
    if whole is None or not _parses(source):
        return
    fine = True
    for time in sorted(needed):
        statement = executed.statements[time]
        error = _error(ast.Module(statement.nodes, []))
        if error is not None:
            fine = False
            number, mine = executed.cell(time).number, time >= executed.start
            at = (error.lineno or statement.start) + (line - 1 if mine else 0)
            names = [] if mine else sorted(statement.binds)
            yield _problem(f"cell [{number}] line {at}", number, error, names)
    if fine:
        place = where(whole.lineno or 1)
        yield _problem(place, cell_of(place), whole, [])


def unparsable(target: str, number: int, line: int) -> Iterator[Problem]:
    """Yield a problem if the submitted cell `target`, with execution count `number`, is not valid Python.

    `line` is the line of the cell at which the text below its magic begins.
    """
    parsed = analyse(target)[0]
    if parsed.tree.body or parsed.magics or all(each.lstrip()[:1] in ("", "#") for each in parsed.lines):
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse("\n".join(parsed.lines))
    except SyntaxError as error:
        place = f"cell [{number}] line {(error.lineno or 1) + line - 1}"
        yield Problem("syntax", "", number, f"{place}: {error.msg}: {(error.text or '').strip()}")
    except ValueError as error:  # null bytes
        yield Problem("syntax", "", number, f"cell [{number}] is no Python source: {error}")


def _problem(place: str, cell: int | None, error: SyntaxError, names: list[str]) -> Problem:
    what = f"{place} cannot stand in a module, as which a job imports it: {error.msg}"
    way_out = "Put it into an async function and call that with asyncio.run(...)" if _WAITS.search(error.msg) else ""
    if names:
        way_out = f"{way_out or 'Write it in another way'}, or add --capture {','.join(names)}"
    return Problem("module", ",".join(names), cell, f"{what}. {way_out or 'Write it in another way'}.")


def _error(code: ast.Module | str) -> SyntaxError | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(code, "definition.py", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or type(error).__name__)
    return None


def _parses(source: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
