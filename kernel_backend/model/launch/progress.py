"""Report a rank's progress to its launcher: a few bytes in the attempt's folder, and its stacks."""

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
    """A progress tick: `number` grows with each; `step` is the current one, or the last."""

    number: int
    phase: Phase
    step: int

    @property
    def about(self) -> int | None:
        """Return the step that a failure at this tick belongs to; None before the training began."""
        if self.phase in ("starting", "preparing"):
            return None
        return self.step if self.phase in ("first step", "step") else self.step + 1


BEGINNING = Tick(0, "starting", 0)


def write_tick(buffer: memoryview, tick: Tick) -> None:
    """Write a tick into the mapped bytes of the progress file."""
    _LAYOUT.pack_into(buffer, 0, tick.number, tick.step, PHASES.index(tick.phase))


def read_tick(data: bytes) -> Tick | None:
    """Return the tick in a progress file's bytes; None if a full disk left the file too short.

    A rank without ticks is not watched for hangs.
    """
    if len(data) < SIZE:
        return None
    number, step, phase = _LAYOUT.unpack_from(data)
    return Tick(number, PHASES[phase], step)


def progress_file(rank: int) -> str:
    """Return the path of a rank's newest tick, within the attempt's folder."""
    return f"progress-{rank}"


def stacks_file(rank: int) -> str:
    """Return the path of a rank's stacks, whose first line names its main thread."""
    return f"stacks-{rank}.log"


def limit(phase: Phase, hang_timeout: float) -> float:
    """Return how many seconds a rank may spend between two ticks in this phase."""
    if phase in _SLOW:
        return max(_SLOWER * hang_timeout, SLOW_S)
    return hang_timeout


def stall_limit(hang_timeout: float) -> float:
    """Return how many seconds a backend waits for a peer.

    It is longer than any limit, so that a hang is reported by its cause.
    """
    return limit("starting", hang_timeout) + _BEYOND_S
