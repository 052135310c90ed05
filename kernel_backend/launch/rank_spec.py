"""Specify the ranks to start, and the interface of their processes, whether started cold or forked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class RankSpec(NamedTuple):
    """Environment and open files of one rank."""

    env: Mapping[str, str]
    stdin: int  # source of instructions; it is closed when the launcher ends
    output: int  # file descriptor of its log


class RankRequest(NamedTuple):
    """Request for the ranks of one node, in order of rank."""

    folder: str  # attempt's folder, the only argument of the runner
    cwd: str
    orders: tuple[RankSpec, ...]

    def close(self) -> None:
        """Close this process's copies of the files, once the ranks have theirs or are not started."""
        for order in self.orders:
            for file in (order.stdin, order.output):
                with contextlib.suppress(OSError):
                    os.close(file)


class RankProcesses(Protocol):
    """Interface to the rank processes started for a request."""

    lost: str | None
    """Why nobody can say how they ended; None while that is known."""

    def codes(self) -> Sequence[int | None]:
        """Return each rank's exit code (a signal as a negative number), None until it has ended."""

    def pids(self) -> Sequence[int]:
        """Return the process ids in order of rank; empty until all exist."""

    def signal(self, number: int) -> None:
        """Send a signal to each running rank."""

    def end(self) -> Sequence[int]:
        """Kill the ranks that still run, wait until they are gone, and return their rank numbers."""
