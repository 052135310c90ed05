"""Start agents without the privileged helper: as processes of the user who runs the tests, each with its own home."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.agent.serve import SUBFOLDER, serve


class ForkedAgent:
    """An agent in a fork of the test process, which has imported all of it: that takes an agent a second."""

    def __init__(self, stdin: socket.socket, folder: Path, environment: Mapping[str, str]) -> None:
        arguments = stdin.fileno(), folder, environment
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments)
        self._process.start()

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end, so many seconds at most, and return its exit code; None while it lives."""
        self._process.join(timeout)
        return self._process.exitcode


def _serve(stdin: int, folder: Path, environment: Mapping[str, str]) -> None:
    gc.freeze()  # or objects of the test process would close descriptors that are this one's by then
    os.setsid()
    os.dup2(stdin, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # as a child of its own has none of the test process's sockets
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    logging.root.handlers.clear()  # an agent says where its log goes
    serve()


class Ourselves:
    """Starter of agents, which records them. `instead` has programs that run in place of some users' agents."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.instead: dict[str, tuple[str, ...]] = {}
        self.started: list[subprocess.Popen[bytes] | ForkedAgent] = []

    def area(self, user: str) -> Path:
        """Return the folder in which a user's agent stores its files."""
        return self.home / user / SUBFOLDER

    def __call__(self, user: str, stdin: socket.socket) -> None:
        folder = self.home / user
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        environment = {**os.environ, "DAYLIGHT_HOME": str(folder)}
        if user not in self.instead:
            self.started.append(ForkedAgent(stdin, folder, environment))
            return
        command = [sys.executable, *self.instead[user]]
        self.started.append(subprocess.Popen(command, stdin=stdin, cwd=folder, env=environment, start_new_session=True))

    def end(self) -> None:
        """Kill the agents that still run."""
        for each in self.started:
            each.kill()
            each.wait()
