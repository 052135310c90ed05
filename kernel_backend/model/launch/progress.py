"""How a rank shows its launcher that it gets on: a few bytes in a file of the attempt's folder, and its stacks."""

from __future__ import annotations

import signal
import struct
from typing import Literal, NamedTuple, get_args

Phase = Literal["starting", "first step", "step", "validation", "checkpoint", "finishing", "waiting", "preparing"]
PHASES: tuple[Phase, ...] = get_args(Phase)

SHOW_STACKS = signal.SIGQUIT  # to a rank: write where all threads stand; as a Java program does
SLOW_S = 120.0  # the least that a slow phase gets, however short the time-out is
# Imports, data, compilers, disks, downloads.
_SLOW = ("starting", "first step", "checkpoint", "finishing", "waiting", "preparing")
_SLOWER = 3  # they get this many times what a step does
_BEYOND_S = 300.0  # what a backend waits for a peer on top of all that

_LAYOUT = struct.Struct("<QQB")  # ticks so far, step, number of the phase
SIZE = _LAYOUT.size


class Tick(NamedTuple):
    """A sign of life: `number` grows with each; `step` is the one that is being taken, or was taken last."""

    number: int
    phase: Phase
    step: int

    @property
    def about(self) -> int | None:
        """The step by which a failure of this moment is known; None before the training began."""
        if self.phase in ("starting", "preparing"):
            return None
        return self.step if self.phase in ("first step", "step") else self.step + 1


BEGINNING = Tick(0, "starting", 0)


def write_tick(buffer: memoryview, tick: Tick) -> None:
    """Put a tick into the file's bytes."""
    _LAYOUT.pack_into(buffer, 0, tick.number, tick.step, PHASES.index(tick.phase))


def read_tick(data: bytes) -> Tick | None:
    """The tick in the file's bytes; None where the rank had no room for one, and so is not watched."""
    if len(data) < SIZE:
        return None
    number, step, phase = _LAYOUT.unpack_from(data)
    return Tick(number, PHASES[phase], step)


def progress_file(rank: int) -> str:
    """Where a rank's newest tick stands, within the attempt's folder."""
    return f"progress-{rank}"


def stacks_file(rank: int) -> str:
    """Where a rank writes its stacks: a first line names its main thread."""
    return f"stacks-{rank}.log"


def limit(phase: Phase, hang_timeout: float) -> float:
    """How many seconds a rank may spend between two ticks in this phase."""
    if phase in _SLOW:
        return max(_SLOWER * hang_timeout, SLOW_S)
    return hang_timeout


def stall_limit(hang_timeout: float) -> float:
    """How many seconds a backend waits for a peer: longer than any limit, so that a hang is named by its cause."""
    return limit("starting", hang_timeout) + _BEYOND_S
