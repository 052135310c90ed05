"""The service's program in a fork of the test process, which has imported all of it: an import takes it two seconds."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.app import main
from tests.support.world import PATIENCE_S


class ForkedService:
    """`python -m kernel_backend ARGUMENTS` for a home, with these environment variables besides."""

    def __init__(self, home: Path, *arguments: str, **variables: str) -> None:
        reading, writing = os.pipe()
        more = {"DAYLIGHT_HOME": str(home), **variables}
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=(writing, arguments, more))
        self._process.start()
        os.close(writing)
        self.output = os.fdopen(reading)  # stdout and stderr

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._process.terminate()

    def ended(self) -> tuple[int, str]:
        """Wait for its end; its exit code, and what is left to read of its output."""
        with self.output:
            told = self.output.read()
        self._process.join(PATIENCE_S)
        assert self._process.exitcode is not None
        return self._process.exitcode, told


def _serve(output: int, arguments: tuple[str, ...], variables: Mapping[str, str]) -> None:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout, sys.stderr = (open(each, "w", buffering=1, closefd=False) for each in (1, 2))  # noqa: SIM115
    logging.root.handlers.clear()  # the service says where its log goes
    os.environ.update(variables)
    sys.argv = ["daylight", *arguments]
    main(arguments)
