"""Run a process that has imported what notebooks use, and whose forks run functions for tests.

A fork of the test process itself takes several times as long: it copies the page tables of all that tests import.

    python -m tests.notebooks.template DESCRIPTOR
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing.connection
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.notebooks.kernel import apart

ROOT = Path(__file__).parents[2]
PRELOADED = ("numpy", "pandas", "torch", "sklearn.linear_model", "sklearn.preprocessing", "matplotlib.pyplot")

Call = Callable[..., Any]


@contextlib.contextmanager
def template() -> Iterator[Call]:
    """Start the process, and yield a function that calls `function(*args)` in a fork and returns the result.

    An error in the fork is raised here as RuntimeError. Functions, arguments and values are pickled.
    """
    here, there = socket.socketpair()
    command = [sys.executable, "-m", __name__, str(there.fileno())]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[there.fileno()]) as process:
        there.close()
        connection = multiprocessing.connection.Connection(here.detach())

        def call(function: Call, *args: Any) -> Any:
            connection.send((function, args))
            worked, value = connection.recv()
            if not worked:
                raise RuntimeError(value)
            return value

        yield call
        connection.close()  # which ends it
    assert process.returncode == 0


def main(descriptor: int) -> None:
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    connection = multiprocessing.connection.Connection(descriptor)
    os.set_inheritable(descriptor, False)
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, apart(functools.partial(function, *args))))
        except RuntimeError as error:
            connection.send((False, str(error)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
