"""Run notebooks in a real IPython with Daylight's recorder, and the jobs that their captures make."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

# A shell imports these when it is made: once here, and not anew in each forked process.
from IPython.core import application, completer, completerlib, magics  # noqa: F401
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from jupyter_ext.capture import Capture, capture_cell
from jupyter_ext.magics.recorder import Recorder
from jupyter_ext.project import Imported
from jupyter_ext.submit.process import notebook_process
from kernel_backend.model.snapshot import Process
from kernel_backend.runner.definition.load import executed
from kernel_backend.runner.definition.process_check import Difference, ProcessCheck
from kernel_backend.snapshots.process import cell_of
from tests.notebooks.collection import Notebook

T = TypeVar("T")


def shell() -> InteractiveShell:
    """Return an IPython shell that writes no files and displays nothing."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    made = InteractiveShell(config=config, user_module=ModuleType("__main__"))
    made.showtraceback = lambda *args, **more: None
    atexit.unregister(made.atexit_operations)  # a search for garbage each, at the end of thousands of them
    made._format_exception_for_storage = lambda *args, **more: {}  # which takes most of the time
    return made


class _Unwatched(Imported):
    """Substitute for the record of imported modules: it reads none of the test process's thousands of modules."""

    def look(self) -> None:
        pass


def execute(kernel: InteractiveShell, cells: Sequence[str]) -> Recorder:
    """Run cells, continuing after failed ones, and return what the recorder has recorded."""
    recorder = Recorder(kernel, _Unwatched())
    recorder.cells.clear()
    recorder.register()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for cell in cells:
            kernel.run_cell(cell, store_history=True)
    recorder.unregister()
    return recorder


def load(source: str, cell: int = 1, before_cell: Callable[[], None] = int) -> dict[str, Any]:
    """Return the names in a captured module, executed like a job does.

    `before_cell` is called before its line `cell`.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        return vars(executed(Path("definition.py"), source, cell, before_cell))


def apart(work: Callable[[], T]) -> T:
    """Call `work` in a forked process, which isolates changes of modules; return its value or raise its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        gc.freeze()  # or each collection here walks, and so copies, the heap of the whole test process
        os.close(reading)
        if "torch" in sys.modules:  # a fork has none of the parent's threads, for which OpenMP would wait for ever
            sys.modules["torch"].set_num_threads(1)
        try:
            answer: tuple[bool, Any] = (True, work())
        except BaseException:
            answer = (False, traceback.format_exc())
        with os.fdopen(writing, "wb") as stream:
            stream.write(pickle.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    worked, value = pickle.loads(data)
    if not worked:
        raise RuntimeError(value)
    return value


def in_kernel(notebook: Notebook) -> tuple[str, Capture, Process]:
    """Return the value in the notebook, and the capture and record made right before."""
    kernel = shell()
    recorder = execute(kernel, notebook.cells)
    capture = capture_cell(recorder.cells, notebook.target)
    process = notebook_process(capture, {})
    kernel.run_cell(notebook.target)
    return repr(kernel.user_ns["result"]()), capture, process


def in_job(capture: Capture, process: Process) -> tuple[str, list[Difference]]:
    """Return the value in the job, and the settings that differ there."""
    check = ProcessCheck(process, cell_of(capture.source, capture.roles_from))
    names = load(capture.source, capture.roles_from, check.cell_begins)
    differences = check.differences()
    return repr(names["result"]()), differences
