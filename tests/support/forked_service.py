"""Run the service's program in a fork of a process that has imported all of it, as the import takes two seconds."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

import psutil

from kernel_backend.app import main
from tests.support.patience import PATIENCE_S, starvation

# Not a fork of the test process, whose other threads may hold locks.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


class ForkedService:
    """Process that runs `python -m kernel_backend ARGUMENTS` for a home, with further environment variables.

    It writes to `said`, or to a pipe, which `ended` reads.
    """

    def __init__(self, home: Path, *arguments: str, said: IO[bytes] | None = None, **variables: str) -> None:
        if said is None:
            reading, writing = _CONTEXT.Pipe(duplex=False)
            with reading:
                self.output = os.fdopen(os.dup(reading.fileno()))  # stdout and stderr
        else:
            writing = Connection(os.dup(said.fileno()), readable=False)
        environment = {**os.environ, **variables, "DAYLIGHT_HOME": str(home)}
        started = _CONTEXT.Process(target=_serve, args=(writing, os.getcwd(), arguments, environment), daemon=True)
        _start_forkserver()
        started.start()
        writing.close()
        self._process = started
        self.process = psutil.Process(started.pid)  # shows neither its command line nor its variables

    @property
    def pid(self) -> int:
        """Return its process number."""
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.exitcode

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        self._process.terminate()

    def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and the rest of its output."""
        with self.output:
            rest = self.output.read()
        return self.wait(), rest

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        self._process.join(PATIENCE_S * starvation())
        assert self._process.exitcode is not None
        return self._process.exitcode


def _start_forkserver() -> None:
    """Start the process that is forked, if none runs, in an environment without a home: whose end would end it, too."""
    home = os.environ.pop("DAYLIGHT_HOME", None)
    try:
        forkserver.ensure_running()
    finally:
        if home is not None:
            os.environ["DAYLIGHT_HOME"] = home


def _serve(output: Connection, folder: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    with output, open(os.devnull) as nothing:
        for descriptor, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (open(each, "w", buffering=1, closefd=False) for each in (1, 2))  # noqa: SIM115
    logging.root.handlers.clear()  # the service says where its log goes
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["daylight", *arguments]
    main(arguments)
