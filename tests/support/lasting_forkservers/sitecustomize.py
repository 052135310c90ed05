"""Give the launchers on a node one forkserver that outlives them, since importing torch takes each its own seconds.

This is in a folder for PYTHONPATH. A site may end all that a job leaves, so that each has its own forkserver; the Slurm
of the tests ends only the descendants of a job step. NODE_FORKSERVERS names the folder of the forkservers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_backend.launch.forkserver.client import Forkserver
    from kernel_backend.model.launch.launch_spec import LaunchSpec


def keep_forkservers() -> None:
    """Replace what starts a launcher's own forkserver by what uses the node's, and starts it if there is none."""
    from kernel_backend.launch import gang, launcher
    from kernel_backend.launch.forkserver.client import Forkserver

    class Lasting(Forkserver):
        """Forkserver that is no descendant of the launcher that starts it."""

        asked = False

        def connect(self) -> socket.socket | None:
            found = self.endpoint.connect()
            if found is None and not self.asked:
                self.start()
            return found

        def start(self) -> None:
            self.asked = True
            nothing, command = subprocess.DEVNULL, ["setsid", "--fork", *self._command]
            with self.endpoint.log.open("ab") as log:
                subprocess.run(command, cwd=self._cwd, env=self._env, stdin=nothing, stdout=log, stderr=log, check=True)

    gang.Forkserver = Lasting

    @contextlib.contextmanager
    def nodes_forkserver(job: LaunchSpec) -> Iterator[Forkserver]:
        folder = Path(os.environ["NODE_FORKSERVERS"])
        folder.mkdir(parents=True, exist_ok=True)
        forkserver = gang._forkserver(job, folder)
        with contextlib.suppress(OSError):
            if (found := forkserver.connect()) is not None:
                found.close()
        yield forkserver

    launcher.own_forkserver = nodes_forkserver


if {"kernel_backend.launch", "kernel_backend.staging"} & set(sys.orig_argv):
    keep_forkservers()
