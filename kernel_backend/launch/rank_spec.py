"""Define the request to start a node's ranks, and the interface to started ranks (new or forked processes)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class RankSpec(NamedTuple):
    """Environment variables and open files of one rank."""

    env: Mapping[str, str]
    stdin: int  # file descriptor from which it reads instructions; closed when the launcher exits
    output: int  # file descriptor of its log


class RankRequest(NamedTuple):
    """Request to start the ranks of one node; `orders` has the environment and files of each rank, in order of rank."""

    folder: str  # attempt's folder, the only argument of the runner
    cwd: str
    orders: tuple[RankSpec, ...]

    def close(self) -> None:
        """Close this process's copies of the ranks' files, once the ranks have started or cannot be started."""
        for order in self.orders:
            for file in (order.stdin, order.output):
                with contextlib.suppress(OSError):
                    os.close(file)


class RankProcesses(Protocol):
    """Interface to the rank processes of one node, whether they are new interpreters or were forked."""

    lost: str | None
    """Reason why the ranks' exit codes are unavailable; None while they are available."""

    def codes(self) -> Sequence[int | None]:
        """Return the exit code of each rank, in order of rank (negative for a signal); None for a running rank."""

    def pids(self) -> Sequence[int]:
        """Return the process IDs of the ranks, in order of rank; empty until all exist."""

    def signal(self, number: int) -> None:
        """Send the signal `number` to each rank that is running."""

    def end(self) -> Sequence[int]:
        """Kill the ranks that still run, and wait until they have exited; return the numbers of the ranks killed."""
