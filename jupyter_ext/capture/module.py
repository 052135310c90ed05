"""The submitted cell and the statements that it depends on, written as one module with the cells' own text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jupyter_ext.capture.cells import Cell, Parsed, parse_cell
from jupyter_ext.capture.missing import Problem, explain, written_in
from jupyter_ext.capture.settings import Settings, settings
from jupyter_ext.capture.slice import History, Slice
from jupyter_ext.capture.statements import FunctionNode, Statement, statements
from kernel_backend.model.definition import LOOP_VALUES, is_role
from kernel_backend.model.snapshot import Piece

_FUTURE = re.compile(r"from\s+__future__\s+import\s+(.+)")
_HEAVY = re.compile(r"\.(fit|backward)\(")
_LONG = 5.0  # seconds


@dataclass(frozen=True)
class Capture:
    """One module, `source`, and where each of its lines came from. With `problems` it cannot be submitted."""

    source: str
    pieces: tuple[Piece, ...]
    roles_from: int
    requirements: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def where(self, line: int) -> str:
        """`cell [4] line 2` or `train.py line 7` for a line of the module; `line 3` for one of ours."""
        for piece in self.pieces:
            if piece.line <= line < piece.line + piece.count:
                own = piece.cell_line + line - piece.line
                return f"cell [{piece.cell}] line {own}" if piece.cell is not None else f"{piece.file} line {own}"
        return f"line {line}"

    def relocate(self, message: str) -> str:
        """A message about the module with each `line N` of it replaced by its place in the notebook."""
        return re.sub(r"\bline (\d+)\b", lambda found: self.where(int(found[1])), message)

    @property
    def described(self) -> str:
        """`12 lines from cells 1 and 2`."""
        count = sum(piece.count for piece in self.pieces)
        names = list(dict.fromkeys(str(each.cell) if each.cell is not None else str(each.file) for each in self.pieces))
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        cells = "" if self.pieces[-1].cell is None else "cell " if len(names) == 1 else "cells "
        return f"{count} line{'' if count == 1 else 's'} from {cells}{listed}"


def capture_cell(
    history: Sequence[Cell | str],
    target: str,
    namespace: Mapping[str, object] | None = None,
    *,
    number: int | None = None,
    line: int = 1,
) -> Capture:
    """What `target` needs of the executed cells in `history` (oldest first), as one module.

    `number` is the target's execution count and `line` where its text begins in its cell (2 below a cell magic).
    Raises nothing: what stands in the way is in `problems`, all of it.
    """
    cells = [_numbered(each, index) for index, each in enumerate(history)]
    number = number if number is not None else (cells[-1].number or 0) + 1 if cells else 1
    return _Builder([*cells, Cell(_plain(target), number=number)], namespace, line).build()


def capture_file(path: Path) -> Capture:
    """The module that a file is, whole; raises OSError or UnicodeDecodeError where it cannot be read."""
    source = _plain(path.read_text(encoding="utf-8"))
    count = len(source.rstrip("\n").split("\n"))
    return Capture(source, (Piece(cell=None, file=path.name, line=1, count=count, cell_line=1),), roles_from=1)


def _plain(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _numbered(cell: Cell | str, index: int) -> Cell:
    cell = Cell(cell) if isinstance(cell, str) else cell
    return replace(cell, source=_plain(cell.source), number=index + 1 if cell.number is None else cell.number)


class _Builder:
    """The steps of `capture_cell`; the last of `cells` is the target."""

    def __init__(self, cells: Sequence[Cell], namespace: Mapping[str, object] | None, line: int) -> None:
        self.cells, self.namespace, self.line = cells, namespace, line
        self.parsed = [parse_cell(cell.source) for cell in cells]
        self.executed: list[tuple[int, Statement]] = []  # with the index of the cell
        self.unfinished: list[tuple[int, Statement]] = []  # what a failed cell did not come to
        for index in range(len(cells)):
            self._execute(index)
        self.start = next(
            (t for t, (cell, _) in enumerate(self.executed) if cell == len(cells) - 1), len(self.executed)
        )

    def _execute(self, index: int) -> None:
        cell, target = self.cells[index], index == len(self.cells) - 1
        for statement in statements(self.parsed[index].tree):
            if cell.displayed:
                statement = replace(statement, changes=[each for each in statement.changes if not each.looked])
            if statement.magic:
                statement = replace(statement, now=statement.now - {"get_ipython"})
                if target and not statement.binds:
                    continue
            done = cell.error_line is None or statement.end < cell.error_line
            (self.executed if done else self.unfinished).append((index, statement))

    def build(self) -> Capture:
        """The capture, with everything that was found on the way."""
        sliced = Slice(History([each for _, each in self.executed]), self.start, self._shared())
        written = written_in(sliced, self.namespace)
        found = settings(list(zip(self.cells, self.parsed, strict=True)))
        problems = (*self._made_by_magic(sliced), *explain(sliced, written, self))
        taken = [time for time in sorted(sliced.needed) if time < self.start and not self.executed[time][1].magic]
        head = [*self._futures(), *_environment_lines(found), *written.lines]
        source, pieces, roles_from = self._text(taken, head)
        return Capture(
            source,
            pieces,
            roles_from,
            found.requirements,
            found.environment,
            (*written.warnings, *found.warnings, *self._heavy(taken)),
            problems,
        )

    def _shared(self) -> list[str]:
        """Functions of other cells whose results the roles ask for by the name of a required argument."""
        functions: dict[str, tuple[int, FunctionNode]] = {}
        for time, (_, statement) in enumerate(self.executed):
            for name in statement.binds:
                functions.pop(name, None)
            functions |= {node.name: (time, node) for node in statement.nodes if isinstance(node, FunctionNode)}
        queue = [node for name, (time, node) in functions.items() if time >= self.start and is_role(name)]
        shared: dict[str, None] = {}
        while queue:
            arguments = queue.pop().args
            required = arguments.args[: len(arguments.args) - len(arguments.defaults)]
            required += [
                a for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not default
            ]
            for name in [each.arg for each in required if each.arg not in LOOP_VALUES]:
                if name in functions and name not in shared:
                    shared[name] = None
                    queue.append(functions[name][1])
        return list(shared)

    # What stands in the way

    def _made_by_magic(self, sliced: Slice) -> Iterator[Problem]:
        for time in sorted(sliced.needed):
            index, statement = self.executed[time]
            if statement.magic:
                name = next(iter(statement.binds), "")
                number = self.cells[index].number
                text = self.parsed[index].lines[statement.start - 1].strip()
                where = "here" if time >= self.start else f"in cell [{number}]"
                yield Problem(
                    "magic",
                    name,
                    number,
                    f"this cell uses '{name}', made by '{text}' {where}, which a job cannot repeat. Write it in Python.",
                )

    def place(self, time: int) -> tuple[int, Parsed, Statement]:
        """The number and text of the cell that statement `time` is in, for a message."""
        index, statement = self.executed[time]
        return self.cells[index].number or 0, self.parsed[index], statement

    def _heavy(self, taken: Sequence[int]) -> Iterator[str]:
        told: set[int] = set()
        for time in taken:
            index, statement = self.executed[time]
            cell, lines = self.cells[index], self.parsed[index].lines
            text = "\n".join(lines[statement.start - 1 : statement.end])
            is_code = not any(isinstance(node, FunctionNode | ast.ClassDef) for node in statement.nodes)
            if index in told or not is_code:
                continue
            if _HEAVY.search(text):
                yield f"cell [{cell.number}] line {statement.start} trains something, and runs again in every job"
                told.add(index)
            elif (cell.seconds or 0) > _LONG and not all(name in statement.imports for name in statement.binds):
                yield f"cell [{cell.number}] took {cell.seconds:.0f} s, and what is needed of it runs again in every job"
                told.add(index)

    # The text

    def _futures(self) -> list[str]:
        names: dict[str, None] = {}
        for _, statement in self.executed:
            for node in statement.nodes:
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    names |= {each.name: None for each in node.names}
        return [f"from __future__ import {', '.join(names)}"] if names else []

    def _text(self, taken: Sequence[int], head: list[str]) -> tuple[str, tuple[Piece, ...], int]:
        lines = list(head)
        pieces: list[Piece] = []
        for index, first, last in self._runs(taken):
            number = self.cells[index].number
            if lines:
                lines.append("")
            if not pieces or pieces[-1].cell != number:
                lines.append(f"# cell [{number}]")
            text = self._verbatim(index, first, last)
            pieces.append(Piece(cell=number, line=len(lines) + 1, count=len(text), cell_line=first))
            lines += text
        target = self._target()
        lines += [""] if lines else []
        lines.append(f"# cell [{self.cells[-1].number}]")
        roles_from = len(lines) + 1
        pieces.append(Piece(cell=self.cells[-1].number, line=roles_from, count=len(target), cell_line=self.line))
        return "\n".join([*lines, *target]) + "\n", tuple(pieces), roles_from

    def _runs(self, taken: Sequence[int]) -> list[tuple[int, int, int]]:
        """Cell index, first and last line of neighbouring statements, with the comments directly above them."""
        runs: list[tuple[int, int, int]] = []
        previous: int | None = None
        for time in taken:
            index, statement = self.executed[time]
            if previous == time - 1 and runs[-1][0] == index:
                runs[-1] = (index, runs[-1][1], statement.end)
            else:
                runs.append((index, self._with_comments(time), statement.end))
            previous = time
        return runs

    def _with_comments(self, time: int) -> int:
        index, statement = self.executed[time]
        before = self.executed[time - 1] if time else (-1, statement)
        floor = before[1].end if before[0] == index else 0
        first = statement.start
        while first - 1 > floor and self.parsed[index].lines[first - 2].startswith("#"):
            first -= 1
        return first

    def _verbatim(self, index: int, first: int, last: int) -> list[str]:
        return [_without_future(line) for line in self.parsed[index].lines[first - 1 : last]]

    def _target(self) -> list[str]:
        parsed = self.parsed[-1]
        lines = [_without_future(line) for line in parsed.lines]
        for magic in parsed.magics:
            text = lines[magic.line - 1]
            indent = text[: len(text) - len(text.lstrip())]
            lines[magic.line - 1] = f"{indent}pass  # {text.strip()}" if indent else f"# {text}"
            following = magic.line
            while text.endswith("\\") and following < len(lines):
                text = lines[following]
                lines[following] = f"# {text}"
                following += 1
        while len(lines) > 1 and not lines[-1].strip():
            lines.pop()
        return lines


def _without_future(line: str) -> str:
    return f"# {line}" if _FUTURE.match(line) else line


def _environment_lines(found: Settings) -> list[str]:
    if not found.environment:
        return []
    return ["import os", *(f"os.environ[{name!r}] = {value!r}" for name, value in found.environment.items())]
