"""List the top-level statements of all executed cells in order; those of the submitted cell come last."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence
from dataclasses import replace

from jupyter_ext.capture.cells import Cell
from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.statements import analyse

_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.Match)


class Executed:
    """All top-level statements of the executed cells, in order; a *time* is an index into `statements`.

    If a cell failed, `statements` has its statements up to the failing one, with the effects that this one may have had
    before it failed. The statements after it were not executed, and are in `unfinished`.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.parsed = [analyse(cell.source)[0] for cell in cells]
        self.statements: list[Statement] = []
        self.unfinished: list[tuple[Statement, int]] = []  # with the index of its cell
        self.displayed: set[int] = set()  # times of statements whose value was displayed
        self._cell: list[int] = []
        for index in range(len(cells) - 1):
            self._execute(index)
        self.start = len(self.statements)  # of the target
        self._execute(len(cells) - 1)

    def _execute(self, index: int) -> None:
        cell = self.cells[index]
        statements = analyse(cell.source)[1]
        failing = [each for each in statements if each.start <= (cell.error_line or 0) <= each.end]
        for statement in statements:
            if statement.binds and cell.retained.issuperset(statement.binds):
                continue
            if cell.error_line is not None and statement.end >= cell.error_line:
                self.unfinished.append((statement, cell.number or 0))
                if [statement] == failing and index < len(self.cells) - 1:
                    self._fail(statement, index)
            else:
                if cell.displayed and statement is statements[-1]:
                    self.displayed.add(len(self.statements))
                self.statements.append(statement)
                self._cell.append(index)

    def _fail(self, statement: Statement, index: int) -> None:
        """Add a statement that raised an error, as it may have changed values before the error.

        Names that a simple statement assigns are not bound; those of a block, such as a loop, may be. The captured
        module runs such a statement within `try`; one that cannot be indented for this is left out. `index` is the
        index of its cell.
        """
        blocks = all(isinstance(node, _BLOCKS) for node in statement.nodes)
        alone = statement.after is None and statement.before is None
        if alone and can_be_tried(self.parsed[index].plain[statement.start - 1 : statement.end]):
            perhaps = dict.fromkeys(statement.binds, True) if blocks else {}
            self.statements.append(replace(statement, binds=perhaps, failed=True))
            self._cell.append(index)

    def index(self, time: int) -> int:
        """Return the index of the cell to which the statement at index `time` belongs."""
        return self._cell[time]

    def cell(self, time: int) -> Cell:
        """Return the cell to which the statement at index `time` belongs."""
        return self.cells[self._cell[time]]

    def lines(self, time: int) -> tuple[str, ...]:
        """Return all source lines of the cell to which the statement at index `time` belongs."""
        return self.parsed[self._cell[time]].lines

    def text(self, time: int) -> str:
        """Return the source of the statement at index `time`."""
        return "\n".join(self.cut(self.lines(time), time, time, self.statements[time].start))

    def cut(self, lines: Sequence[str], first: int, last: int, start: int) -> list[str]:
        """Return the lines of a cell from line `start` to the end of the statement with index `last`.

        `lines` are all lines of the cell, and `start` is the line of the statement with index `first`, or of a comment
        above it. Statements before the first and after the last one that share a line with them are cut off.
        """
        begins, ends = self.statements[first], self.statements[last]
        found = list(lines[start - 1 : ends.end])
        if ends.before is not None:
            found[-1] = found[-1][: ends.before]
        if begins.after is not None:
            found[0] = found[0][begins.after :]
        return found


def can_be_tried(lines: Sequence[str]) -> bool:
    """Return True if these lines may be indented, to stand within `try`: no string spans several lines."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline))
    except (tokenize.TokenError, SyntaxError):
        return False
    return all(token.start[0] == token.end[0] or token.type in (tokenize.NEWLINE, tokenize.NL) for token in tokens)
