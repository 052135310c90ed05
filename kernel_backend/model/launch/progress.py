"""Define how a rank reports progress to its launcher: a heartbeat file of a few bytes, and a file of stack traces."""

from __future__ import annotations

import signal
import struct
from typing import Literal, NamedTuple, get_args

Phase = Literal[
    "starting",
    "first step",
    "step",
    "validation",
    "checkpoint",
    "finishing",
    "waiting",
    "preparing",
    "loading",
    "connecting",
    "building",
    "sizing",
    "fetching",
]
PHASES: tuple[Phase, ...] = get_args(Phase)

# Phases before the end of the first step, in the words that users read of them.
OF_START: dict[Phase, str] = {
    "starting": "importing torch",
    "fetching": "fetching data",
    "loading": "running the captured code",
    "preparing": "running prepare",
    "connecting": "connecting the ranks",
    "sizing": "finding the batch size",
    "building": "building the model, reading data",
    "first step": "taking the first step",
}

SHOW_STACKS = signal.SIGQUIT  # asks a rank to write the stacks of all threads, as with the JVM
SLOW_S = 120.0  # minimum limit of a slow phase
# Imports, data, compilers, disks, downloads.
_SLOW = (*OF_START, "checkpoint", "finishing", "waiting")
_SLOWER = 3  # factor by which their limit exceeds that of a step
_BEYOND_S = 300.0  # added to the largest limit: how long a backend waits for a peer

_LAYOUT = struct.Struct("<QQB")  # tick number, step, index of the phase
SIZE = _LAYOUT.size


class Tick(NamedTuple):
    """Sign of progress from a rank, which overwrites it in its progress file with each new one.

    `number` grows each time; `step` is the step in progress, or between steps the last one.
    """

    number: int
    phase: Phase
    step: int

    @property
    def about(self) -> int | None:
        """Return the step to which a failure at this tick is attributed; None before the first step."""
        if self.phase in ("first step", "step"):
            return self.step
        return None if self.phase in OF_START else self.step + 1


BEGINNING = Tick(0, "starting", 0)


def write_tick(buffer: memoryview, tick: Tick) -> None:
    """Write a progress tick into the rank's memory-mapped progress file."""
    _LAYOUT.pack_into(buffer, 0, tick.number, tick.step, PHASES.index(tick.phase))


def read_tick(data: bytes) -> Tick | None:
    """Return the newest progress tick in a rank's file; None if the file is too short, as on a full disk.

    A rank without ticks is not watched for hangs.
    """
    if len(data) < SIZE:
        return None
    number, step, phase = _LAYOUT.unpack_from(data)
    return Tick(number, PHASES[phase], step)


def progress_file(rank: int) -> str:
    """Return the name of a rank's progress file within the attempt's folder."""
    return f"progress-{rank}"


def detail_file(rank: int) -> str:
    """Return the name of the file in which a rank says what a long phase is doing."""
    return f"detail-{rank}.txt"


def stacks_file(rank: int) -> str:
    """Return the name of a rank's file of stack traces in the attempt's folder.

    Its first line names the main thread.
    """
    return f"stacks-{rank}.log"


def limit(phase: Phase, hang_timeout: float) -> float:
    """Return the most seconds between two progress ticks in this phase; a rank that takes longer counts as hung.

    `hang_timeout` is the limit for a step; slow phases, such as the start, have a longer limit that grows with it.
    """
    if phase in _SLOW:
        return max(_SLOWER * hang_timeout, SLOW_S)
    return hang_timeout


def stall_limit(hang_timeout: float) -> float:
    """Return how many seconds a communication backend waits for another rank.

    It is longer than any limit for ticks, so that the launcher reports a hang and its cause first.
    """
    return limit("starting", hang_timeout) + _BEYOND_S
