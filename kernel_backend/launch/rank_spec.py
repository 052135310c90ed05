"""What a launcher orders, and the face of what it gets: rank processes, cold or warm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class RankSpec(NamedTuple):
    """One rank to be started: all that it finds as a new process, besides what its gang has in common."""

    env: Mapping[str, str]
    stdin: int  # where it reads instructions; the end of that file is the end of its launcher
    output: int  # its log


class RankRequest(NamedTuple):
    """The ranks of one node, in order of rank."""

    folder: str  # of the attempt: the runner's one argument
    cwd: str
    orders: tuple[RankSpec, ...]

    def close(self) -> None:
        """Close the files in this process: the ranks have their own by now, or never will."""
        for order in self.orders:
            for file in (order.stdin, order.output):
                with contextlib.suppress(OSError):
                    os.close(file)


class RankProcesses(Protocol):
    """The processes that came of a request."""

    lost: str | None
    """Why nobody can say how they ended; None while that is known."""

    def codes(self) -> Sequence[int | None]:
        """Each rank's exit code (a signal as a negative number), None until it has ended."""

    def pids(self) -> Sequence[int]:
        """The processes in order of rank; empty until all of them exist."""

    def signal(self, number: int) -> None:
        """Send a signal to every rank that lives."""

    def end(self) -> Sequence[int]:
        """Kill what lives and wait until it is gone; the ranks that this concerned."""
