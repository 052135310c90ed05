"""Run the service's program in a fork of a process that has imported all of it, as the import takes two seconds."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from kernel_backend.app import main
from tests.support.world import PATIENCE_S

# Not a fork of the test process, whose other threads may hold locks.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


class ForkedService:
    """Process that runs `python -m kernel_backend ARGUMENTS` for a home, with further environment variables."""

    def __init__(self, home: Path, *arguments: str, **variables: str) -> None:
        reading, writing = _CONTEXT.Pipe(duplex=False)
        environment = {**os.environ, "DAYLIGHT_HOME": str(home), **variables}
        self._process = _CONTEXT.Process(target=_serve, args=(writing, arguments, environment))
        self._process.start()
        writing.close()
        with reading:
            self.output = os.fdopen(os.dup(reading.fileno()))  # stdout and stderr

    @property
    def pid(self) -> int:
        """Return its process number."""
        assert self._process.pid is not None
        return self._process.pid

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        self._process.terminate()

    def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and the rest of its output."""
        with self.output:
            rest = self.output.read()
        self._process.join(PATIENCE_S)
        assert self._process.exitcode is not None
        return self._process.exitcode, rest


def _serve(output: Connection, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
    with output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    sys.stdout, sys.stderr = (open(each, "w", buffering=1, closefd=False) for each in (1, 2))  # noqa: SIM115
    logging.root.handlers.clear()  # the service says where its log goes
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["daylight", *arguments]
    main(arguments)
