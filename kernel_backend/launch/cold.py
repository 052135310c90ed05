"""Start ranks "cold", without a forkserver: each rank is a new Python interpreter, which imports torch itself."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from kernel_backend.launch.rank_spec import RankRequest, RankSpec


class ColdRanks:
    """Rank processes that are new Python interpreters, started as children of this launcher."""

    lost: str | None = None

    def __init__(self, python: str, request: RankRequest) -> None:
        command = [python, "-P", "-m", "kernel_backend.runner", request.folder]
        self._ranks = [_start(command, request.cwd, order) for order in request.orders]

    def codes(self) -> Sequence[int | None]:
        """Return the exit code of each rank, in order of rank; None for a rank that is running."""
        return [rank.poll() for rank in self._ranks]

    def pids(self) -> Sequence[int]:
        """Return the process IDs of the ranks, in order of rank."""
        return [rank.pid for rank in self._ranks]

    def signal(self, number: int) -> None:
        """Send the signal `number` to each rank that is running."""
        for rank in self._ranks:
            rank.send_signal(number)  # checks first whether the process still runs

    def end(self) -> Sequence[int]:
        """Kill the ranks that still run, and wait for their exit; return the numbers of the ranks that were killed."""
        alive = [number for number, code in enumerate(self.codes()) if code is None]
        self.signal(signal.SIGKILL)
        for rank in self._ranks:
            rank.wait()
        return alive


def _start(command: Sequence[str], cwd: str, order: RankSpec) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, cwd=cwd, env=order.env, stdin=order.stdin, stdout=order.output, stderr=order.output
    )
