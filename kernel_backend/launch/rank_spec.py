"""Specify the ranks to start, and the interface of the resulting processes, cold or warm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class RankSpec(NamedTuple):
    """Specification of one rank: its environment and open files, apart from those shared by the gang."""

    env: Mapping[str, str]
    stdin: int  # where it reads instructions; the end of that file is the end of its launcher
    output: int  # its log


class RankRequest(NamedTuple):
    """Request for the ranks of one node, in order of rank."""

    folder: str  # of the attempt: the runner's one argument
    cwd: str
    orders: tuple[RankSpec, ...]

    def close(self) -> None:
        """Close the files in this process, after the ranks have got theirs or never will."""
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
        """Send a signal to every living rank."""

    def end(self) -> Sequence[int]:
        """Kill living ranks, wait until they are gone, and return their numbers."""
