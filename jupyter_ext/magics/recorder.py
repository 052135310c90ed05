"""Record the cells that the kernel executes, starting with the history from before the extension was loaded."""

from __future__ import annotations

import time
from collections.abc import Collection
from types import TracebackType
from typing import Any

from jupyter_ext.capture import Cell
from jupyter_ext.capture.statements import analyse
from jupyter_ext.project import Imported


class Recorder:
    """Executed cells of one kernel, oldest first, in the form required by `capture_cell`."""

    def __init__(self, shell: Any, imported: Imported) -> None:
        """Create the recorder of a kernel; `imported` is updated now and after each cell with new modules."""
        self._shell = shell
        self._began = 0.0
        self.started = time.time()  # a notebook saved earlier belongs to another session
        self._body: tuple[int | None] | None = None
        self._retained = frozenset[str]()
        self._source: str | None = None  # the executed part of the running cell, if that is not all of it
        self._begun: str | None = None  # text of a cell that runs and of which `begins` has not told
        self._depth = 0  # nested cells: some magics, such as %%capture, run their body as a cell
        self.imported = imported
        self.imported.look()
        self.running = ""  # text of the running cell
        past = list(shell.history_manager.input_hist_raw)[1:]
        # The last one is the cell that loads the extension, for which `after` will be called.
        self.cells = [Cell(source, number=number) for number, source in enumerate(past[:-1], start=1)]

    def register(self) -> None:
        """Register the kernel callbacks by which cells are recorded."""
        self._shell.events.register("pre_run_cell", self.before)
        self._shell.events.register("post_run_cell", self.after)

    def unregister(self) -> None:
        """Unregister the kernel callbacks by which cells are recorded."""
        self._shell.events.unregister("pre_run_cell", self.before)
        self._shell.events.unregister("post_run_cell", self.after)

    def before(self, info: Any) -> None:
        """Store the source and start time of a cell that is about to run."""
        self._depth += 1
        if self._depth == 1:
            self._begun = info.raw_cell
            self._began, self.running, self._body = time.monotonic(), info.raw_cell, None
            self._retained, self._source = frozenset(), None

    def begins(self) -> str | None:
        """Return the text of a cell that has just begun; None within a cell, and when it has been returned before."""
        text, self._begun = self._begun, None
        return text

    def after(self, result: Any) -> None:
        """Record a cell that has run or failed; one with a syntax error is not recorded, as it had no effect."""
        self._depth = max(self._depth - 1, 0)  # recording may have begun inside a cell
        if self._depth:
            failed = result.error_in_exec
            line = failed_line(result.info.raw_cell, failed, self._shell.user_ns) if failed is not None else None
            above = len(self.running) - len(self.running.lstrip("\n")) + 1
            self.body_ran(line + above if line is not None else None)
            return
        self.imported.look()
        if result.info is None or result.error_before_exec is not None or result.execution_count is None:
            return
        error_line = None
        if self._body is not None:
            (error_line,) = self._body
        elif result.error_in_exec is not None:
            error_line = failed_line(result.info.raw_cell, result.error_in_exec, self._shell.user_ns)
        cell = Cell(
            result.info.raw_cell if self._source is None else self._source,
            error_line,
            time.monotonic() - self._began if self._began else None,
            result.execution_count,
            displayed=result.result is not None,
            retained=self._retained,
            written=None if self._source is None else result.info.raw_cell,
        )
        self.cells.append(cell)
        analyse(cell.source)  # done now, since the user is not waiting

    def body_ran(self, error_line: int | None, retained: Collection[str] = (), source: str | None = None) -> None:
        """Record that the running cell's magic has executed the cell's body, even if the magic raises an error later.

        `error_line` is the line at which the body failed, None if it did not. Functions named in `retained` are not
        recorded as bound, as the notebook kept its own values of these names. `source` is the cell without the
        statements that were not executed.
        """
        self._body, self._retained = (error_line,), self._retained | frozenset(retained)
        self._source = self._source if source is None else source


def failed_line(source: str, error: BaseException, namespace: dict[str, Any]) -> int:
    """Return the line of the cell at which an exception was raised; the first line if that is unknown."""
    lines = [frame.tb_lineno for frame in _frames(error.__traceback__) if frame.tb_frame.f_globals is namespace]
    blank = len(source) - len(source.lstrip("\n"))
    if not lines:
        return 1
    if source.lstrip().startswith("%%"):  # lines of a body below a magic are numbered from 1
        return lines[1] + blank + 1 if len(lines) > 1 else 1
    return lines[0] + blank


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    found: list[TracebackType] = []
    while traceback is not None:
        found.append(traceback)
        traceback = traceback.tb_next
    return found
