"""Write the submitted cell and the statements it depends on as one module, with the cells' own source text."""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from jupyter_ext.capture.cells import Cell
from jupyter_ext.capture.compile_check import uncompiled, unparsable
from jupyter_ext.capture.deleted import deleted
from jupyter_ext.capture.dropped import dropped
from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.futures import future_imports
from jupyter_ext.capture.history import History
from jupyter_ext.capture.missing import written_in
from jupyter_ext.capture.problems import Problem, problems
from jupyter_ext.capture.repeated import repeated
from jupyter_ext.capture.same_training import without_same_training
from jupyter_ext.capture.settings import KEPT_OUT, Settings, settings
from jupyter_ext.capture.slice import Slice
from jupyter_ext.capture.unseeded import draws_of, is_data, notes_of, unseeded
from jupyter_ext.capture.values import Values, made_by_target, read_times, unused, values
from kernel_backend.definition.aliases import role_of
from kernel_backend.definition.contract import LOOP_VALUES, is_role
from kernel_backend.definition.loop_form import TRAIN
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import Captured, Piece
from kernel_backend.model.syntax import source_text

_LINES = re.compile(r"\bline \d+\b(?! of \w)|\blines \d+(?:(?:,| to| and) \d+)+\b(?!(?:,| to| and) \d| of \w)")
_FUTURE = re.compile(r"from\s+__future__\s+import\s+(.+)")


@dataclass(frozen=True)
class Capture:
    """Captured module: its source and the origin of each line. If there are `problems`, it cannot be submitted."""

    source: str
    pieces: tuple[Piece, ...]
    roles_from: int
    requirements: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    kept_out: tuple[str, ...] = ()  # the warnings that report secrets left out of the snapshot
    problems: tuple[Problem, ...] = ()
    captured: tuple[Captured, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)  # captured values, by name in the archive
    carried: tuple[str, ...] = ()  # project paths in a command's arguments, which the snapshot includes
    modules: tuple[str, ...] = ()  # modules that a command runs by name
    interpreter: str = ""  # another Python that a command names, with packages of its own
    drawn: tuple[str, ...] = ()  # captured values that no option requested, as they are drawn without a seed
    packages: frozenset[str] = frozenset()  # packages that the cell imports, with those that project packages use
    draws_from: tuple[str, ...] = ()  # packages from whose random state the cell draws after earlier cells seeded it
    compared: tuple[str, ...] = ()  # names whose values before the cell must be equal in notebook and job
    changed: tuple[str, ...] = ()  # names of earlier cells' values that the cell may change

    def where(self, line: int) -> str:
        """Return the location of a module line: `cell [4] line 2`, `train.py line 7`, or `line 3` if generated."""
        return _where(self.pieces, line)

    def relocate(self, message: str) -> str:
        """Replace line numbers of the captured module in a message by their locations in the notebook.

        Replaced are `line N`, `lines N to M` and `lines N, M and L`. A line of another module, such as `line N of net`,
        stays.
        """
        return _LINES.sub(self._relocated, message)

    def _relocated(self, found: re.Match[str]) -> str:
        places = [self.where(int(number)).rpartition("line ") for number in re.findall(r"\d+", found[0])]
        between = [*re.findall(r"(?<=\d)\D+", found[0]), ""]
        before = {place[0] for place in places}
        if len(places) > 1 and len(before) == 1:  # all in one cell: `cell [4] lines 2 and 5`
            return f"{before.pop()}lines " + "".join(
                place[2] + text for place, text in zip(places, between, strict=True)
            )
        return "".join("".join(place) + text for place, text in zip(places, between, strict=True))

    @property
    def described(self) -> str:
        """Return a description of the module, such as `12 lines from cells 1 and 2`."""
        count = sum(piece.count for piece in self.pieces)
        names = list(dict.fromkeys(str(each.cell) if each.cell is not None else str(each.file) for each in self.pieces))
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        cells = "" if self.pieces[-1].cell is None else "cell " if len(names) == 1 else "cells "
        return f"{count} line{'' if count == 1 else 's'} from {cells}{listed}{self._values_drawn}"

    @property
    def _values_drawn(self) -> str:
        """Return the part of `described` about values that were drawn without a seed; "" if there are none.

        Example: `, with the notebook's x (3.2 MB), which is drawn without a seed`.
        """
        found = [f"{names} ({size(each.bytes)})" for names, each in self.captured_files if each.name in self.drawn]
        verb = "is" if len(self.drawn) == 1 else "are"
        return f", with the notebook's {', '.join(found)}, which {verb} drawn without a seed" if found else ""

    @property
    def captured_files(self) -> list[tuple[str, Captured]]:
        """Return the first value of each captured file with the names of all values in it, such as `net, opt`."""
        by_file: dict[str, list[Captured]] = {}
        for each in self.captured:
            by_file.setdefault(each.file, []).append(each)
        return [(", ".join(each.name for each in values), values[0]) for values in by_file.values()]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection during a capture.

    Computing a slice allocates a million objects that live until its end; collections would take a third of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_no_collection()
def capture_cell(
    history: Sequence[Cell | str],
    target: str,
    namespace: Mapping[str, object] | None = None,
    *,
    number: int | None = None,
    line: int = 1,
    captured: Sequence[str] = (),
    from_jobs: Collection[str] = (),
    draws_anew: bool = False,
) -> Capture:
    """Return `target` and the statements in `history` (executed cells, oldest first) that it depends on, as one module.

    `number` is the target's execution count, and `line` is the line of its cell where its text begins (2 below a cell
    magic). Values of `captured` names are sent in files, which the module reads at the places where the names were last
    bound. So are those of the names `from_jobs` that are needed, as no cell makes what a job has set, and values that
    are drawn without a seed, unless `draws_anew` is set. Never raises: reasons that prevent the capture are listed in
    `problems`.
    """
    cells = [_numbered(each, index) for index, each in enumerate(history)]
    number = number if number is not None else (cells[-1].number or 0) + 1 if cells else 1
    cells, tried, trains = without_same_training(cells, _plain(target))
    executed = Executed([*cells, Cell(_plain(target), number=number)])
    bound = {name for each in executed.statements for name in each.binds}
    data = [name for name in bound & (namespace or {}).keys() if is_data((namespace or {})[name])]
    past = History(executed.statements, executed.displayed, data)
    shared = _shared(executed)
    given = _given(past, executed.start, shared, from_jobs, trains=trains)
    held = values([*captured, *given], namespace, {*from_jobs, *given})
    sliced = Slice(past, executed.start, [*shared, *held.needs], held.written, trains=trains)
    drawn = unseeded(executed, sliced, None if draws_anew else namespace)
    if drawn.held.written:
        held = held.with_others(drawn.held, namespace or {})
        sliced = Slice(past, executed.start, [*shared, *held.needs], held.written, trains=trains)
    draws = draws_of(past, executed.start)
    written = written_in(sliced, namespace, executed)
    found = settings(zip(executed.cells, executed.parsed, strict=True), {} if namespace is None else os.environ)
    taken = [time for time in sorted(sliced.needed) if time < executed.start]
    ahead = future_imports(executed, sliced.needed)
    writer = _Writer(executed, [*ahead.lines, *_environment_lines(found), *written.lines])
    writer.read(held, read_times(sliced, held))
    writer.write(taken)
    roles_from = writer.write_target(line)
    kept_out = (*found.warnings, *_secrets(executed))
    source, pieces = "\n".join(writer.lines) + "\n", tuple(writer.pieces)
    return Capture(
        source=source,
        pieces=pieces,
        roles_from=roles_from,
        requirements=found.requirements,
        environment=found.environment,
        warnings=(
            *written.warnings,
            *tried,
            *unused(sliced, [each for each in captured if each in held.written]),
            *kept_out,
            *_unseen(executed, sliced),
            *_too_intricate(executed, sliced, line),
            *ahead.warnings,
            *repeated(executed, taken, loop=trains),
            *drawn.notes,
            *notes_of(draws),
            *dropped(executed, sorted(sliced.needed)),
        ),
        kept_out=kept_out,
        problems=(
            *held.problems,
            *drawn.problems,
            *made_by_target(sliced, captured),
            *problems(executed, sliced, written.left, namespace, line),
            *deleted(executed, sliced),
            *unparsable(target, number, line),
            *uncompiled(executed, sliced.needed, line, source, partial(_where, pieces)),
        ),
        packages=sliced.packages,
        compared=sliced.compared,
        changed=sliced.changed,
        draws_from=draws.seeded,
        captured=tuple(writer.captured),
        drawn=tuple(drawn.held.written),
        files=held.files,
    )


def capture_file(path: Path) -> Capture:
    """Return a file as one module; raise InvalidRequest if Python could not read it."""
    try:
        source = _plain(source_text(path.read_bytes()))
    except (OSError, ValueError, SyntaxError) as error:
        unread = f"it is no UTF-8 text, and no line such as # coding: latin-1 begins it ({error})"
        reason = error.strerror if isinstance(error, OSError) else unread
        raise InvalidRequest(f"{path} cannot be read: {reason}") from None
    count = len(source.rstrip("\n").split("\n"))
    return Capture(source, (Piece(cell=None, file=path.name, line=1, count=count, cell_line=1),), roles_from=1)


def _where(pieces: Sequence[Piece], line: int) -> str:
    for piece in pieces:
        if piece.line <= line < piece.line + piece.count:
            own = piece.cell_line + line - piece.line
            return f"cell [{piece.cell}] line {own}" if piece.cell is not None else f"{piece.file} line {own}"
    return f"line {line}"


def _plain(source: str) -> str:
    return source.replace("\r\n", "\n").replace("\r", "\n")


def _numbered(cell: Cell | str, index: int) -> Cell:
    cell = Cell(cell) if isinstance(cell, str) else cell
    return replace(cell, source=_plain(cell.source), number=index + 1 if cell.number is None else cell.number)


def _given(past: History, start: int, shared: Sequence[str], from_jobs: Collection[str], *, trains: bool) -> list[str]:
    """Return the names whose values travel as jobs have set them, and those of values that change along with these."""
    found, names = frozenset[str](), frozenset(from_jobs)
    while names - found:
        sliced = Slice(past, start, shared, names, trains=trains)
        found = frozenset(sliced.given)
        names = found | sliced.bound_up
    return sorted(found)


def _shared(executed: Executed) -> list[str]:
    """Return the names of functions on whose results the roles of the submitted cell depend, directly or not.

    Roles are the functions that Daylight calls by their names, such as `model` or `loss`. A function depends on another
    if it has a required argument with the name of the other, as `train_data(digits)` depends on `digits`.
    """
    functions: dict[str, tuple[int, FunctionNode]] = {}
    for time, statement in enumerate(executed.statements):
        for name in statement.binds:
            functions.pop(name, None)
        functions |= {node.name: (time, node) for node in statement.nodes if isinstance(node, FunctionNode)}
    queue = [
        node
        for name, (time, node) in functions.items()
        if time >= executed.start and (is_role(name) or role_of(name) or name == TRAIN)
    ]
    shared: dict[str, None] = {}
    while queue:
        for name in _required(queue.pop().args):
            if name in functions and name not in shared and name not in LOOP_VALUES:
                shared[name] = None
                queue.append(functions[name][1])
    return list(shared)


def _required(arguments: ast.arguments) -> list[str]:
    positional = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [each.arg for each in [*positional, *(argument for argument, default in pairs if default is None)]]


def _secrets(executed: Executed) -> Iterator[str]:
    for time, statement in enumerate(executed.statements):
        if time < executed.start and statement.sets_secret:
            place = f"cell [{executed.cell(time).number}] line {statement.start}"
            yield f"{place} sets what looks like a secret and stays out of the snapshot: {KEPT_OUT}"


def _unseen(executed: Executed, sliced: Slice) -> Iterator[str]:
    for time in sliced.history.unseen:
        if time < executed.start:
            place = f"cell [{executed.cell(time).number}] line {executed.statements[time].start}"
            yield f"{place} runs a text that it makes itself: what that does is not followed. Write it out as Python."


def _too_intricate(executed: Executed, sliced: Slice, line: int) -> Iterator[str]:
    for time in sliced.history.too_intricate:
        if time in sliced.needed:
            at = executed.statements[time].start + (line - 1 if time >= executed.start else 0)
            yield (
                f"cell [{executed.cell(time).number}] line {at} is too intricate to follow: it counts as changing all "
                "that it can reach, so more cells may travel than it needs, and fewer values are compared"
            )


class _Writer:
    """Writer of the module's lines, which records the notebook cell of each piece."""

    def __init__(self, executed: Executed, head: Sequence[str]) -> None:
        self.executed = executed
        self.lines = list(head)
        self.pieces: list[Piece] = []
        self.captured: list[Captured] = []
        self._values, self._read_times, self._reader = Values(), dict[str, int](), ""

    def read(self, found: Values, read_times: Mapping[str, int]) -> None:
        """Write the import of the function by which the module reads captured values, if there are any.

        `found` are the captured values. `read_times` maps each value's name to the index of the statement before which
        the module reads it.
        """
        if found.written:
            bound = {name for statement in self.executed.statements for name in statement.binds}
            self._reader = "captured" if "captured" not in bound else "captured_in_notebook"
            renamed = f" as {self._reader}" if self._reader != "captured" else ""
            self.lines.append(f"from daylight import captured{renamed}")
        self._values, self._read_times = found, dict(read_times)

    def _read_values(self, until: int) -> None:
        """Write lines that read captured values from files: the values that statements up to index `until` need."""
        due = [name for name, time in self._read_times.items() if time <= until]
        for name in due:
            del self._read_times[name]
            self.lines.append(self._values.line(name, self._reader))
            self.captured.append(self._values.record(name, len(self.lines)))

    def write(self, taken: Sequence[int]) -> None:
        """Write the needed statements of earlier cells; `taken` has their indices."""
        for time, last, first in self._runs(taken):
            self._read_values(time)
            index = self.executed.index(time)
            text = self.executed.cut(self.executed.parsed[index].plain, time, last, first)
            if self.executed.statements[time].failed:
                self._try(self.executed.cells[index].number, text, first)
                continue
            self._piece(self.executed.cells[index].number, text, first)

    def write_target(self, cell_line: int) -> int:
        """Write the whole submitted cell; return the module line where it begins.

        `cell_line` is the line of the cell at which the text below its magic begins.
        """
        self._read_values(len(self.executed.statements))
        lines = list(self.executed.parsed[-1].plain)
        while len(lines) > 1 and not lines[-1].strip():
            lines.pop()
        self._piece(self.executed.cells[-1].number, lines, cell_line)
        return self.pieces[-1].line

    def _piece(self, number: int | None, text: Sequence[str], cell_line: int) -> None:
        self._mark(number)
        self.pieces.append(Piece(cell=number, line=len(self.lines) + 1, count=len(text), cell_line=cell_line))
        self.lines += [f"# {line}" if _FUTURE.match(line) else line for line in text]

    def _try(self, number: int | None, text: Sequence[str], first: int) -> None:
        """Write a statement that failed in the notebook within `try`, since it may have had some effects.

        `number` is the execution count of its cell, `text` has its lines, and `first` is the line of the cell where it
        begins.
        """
        self._mark(number)
        self.lines.append("try:")
        self.pieces.append(Piece(cell=number, line=len(self.lines) + 1, count=len(text), cell_line=first))
        self.lines += [f"    {line}" if line else line for line in text]
        self.lines += ["except Exception:", f"    pass  # as in cell [{number}]"]

    def _mark(self, number: int | None) -> None:
        if self.lines:
            self.lines.append("")
        if not self.pieces or self.pieces[-1].cell != number:
            self.lines.append(f"# cell [{number}]")

    def _runs(self, taken: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return groups of adjacent needed statements, each as (first index, last index, first line).

        The line is that of the first statement, or of the comments directly above it. A failed statement is a group of
        its own.
        """
        runs: list[tuple[int, int, int]] = []
        previous = -2
        for time in taken:
            statement, index = self.executed.statements[time], self.executed.index(time)
            alone = statement.failed or time in self._read_times.values()
            if previous == time - 1 and self.executed.index(previous) == index and not alone:
                runs[-1] = (runs[-1][0], time, runs[-1][2])
            else:
                first = statement.start if statement.failed else self._with_comments(time)
                runs.append((time, time, first))
            previous = time
        return runs

    def _with_comments(self, time: int) -> int:
        follows = time > 0 and self.executed.index(time - 1) == self.executed.index(time)
        floor = self.executed.statements[time - 1].end if follows else 0
        first = self.executed.statements[time].start
        while first - 1 > floor and self.executed.lines(time)[first - 2].startswith("#"):
            first -= 1
        return first


def _environment_lines(found: Settings) -> list[str]:
    if not found.environment:
        return []
    return ["import os", *(f"os.environ[{name!r}] = {value!r}" for name, value in found.environment.items())]
