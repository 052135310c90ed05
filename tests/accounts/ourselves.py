"""Start agents without the privileged helper: as processes of the user who runs the tests, each with its own home."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from kernel_backend.agent.serve import SUBFOLDER


class Ourselves:
    """Starter of agents, which records them. `instead` has programs that run in place of some users' agents."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.instead: dict[str, tuple[str, ...]] = {}
        self.started: list[subprocess.Popen[bytes]] = []

    def area(self, user: str) -> Path:
        """Return the folder in which a user's agent stores its files."""
        return self.home / user / SUBFOLDER

    def __call__(self, user: str, stdin: socket.socket) -> None:
        folder = self.home / user
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        environment = {**os.environ, "DAYLIGHT_HOME": str(folder)}
        command = [sys.executable, *self.instead.get(user, ("-P", "-m", "kernel_backend.agent"))]
        self.started.append(subprocess.Popen(command, stdin=stdin, cwd=folder, env=environment, start_new_session=True))

    def end(self) -> None:
        """Kill the agents that still run."""
        for each in self.started:
            each.kill()
            each.wait()
