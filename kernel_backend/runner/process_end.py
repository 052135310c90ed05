"""End the process of a rank, or of a child that the user's program has forked, as Python does, but quickly."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import NoReturn

_SUCCESS = (None, 0)  # codes of `sys.exit` after which plain Python ends with 0


@contextlib.contextmanager
def ending_normally() -> Iterator[None]:
    """Run a user's program in the `with` block, which a `sys.exit()` without an error ends normally."""
    try:
        yield
    except SystemExit as end:
        if end.code not in _SUCCESS:
            raise


def end_process(status: int, seconds: float | None = None) -> NoReturn:
    """End the process with exit code `status`, without the interpreter's teardown.

    The user's threads and exit handlers first finish, within `seconds` if given, and open files are flushed.
    """
    if seconds is not None:
        last = threading.Timer(seconds, os._exit, (status,))  # a user's thread may never end
        last.daemon = True
        last.start()
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # as Python calls it: waits, and ends pools of threads
        atexit._run_exitfuncs()
    except BaseException:  # Python itself ignores such errors at exit: the result does not change
        traceback.print_exc()
    _write_out()
    os._exit(status)


def flush_output() -> None:
    """Flush `sys.stdout` and `sys.stderr`, which the program may have closed or replaced."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _write_out() -> None:
    """Flush the buffers of all open files: both Python's file objects and the stdio streams of C libraries."""
    for each in gc.get_objects():
        if issubclass(type(each), io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            with contextlib.suppress(Exception):
                each.flush()
    flush_output()
    ctypes.CDLL(None).fflush(None)
