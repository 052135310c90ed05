"""Define the memory-mapped file in which a rank sums up the time of each part of its steps, read by the launcher."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from kernel_backend.model.times import LOADERS, PARTS

# Positions in the file, which is an array of doubles.
SEQUENCE, STATE, PART, AT, STEPS, LOADER, WORKERS, OPERATIONS, BYTES, WRITING, FIRST = range(11)
COUNT = FIRST + len(PARTS)
RUNNING, ENDED = 1.0, 2.0  # values of STATE; 0 until the second step

_LAYOUT = struct.Struct(f"={COUNT}d")
SIZE = _LAYOUT.size
_LARGEST = 1e15  # larger values, or none that are numbers, were written by other code
TRIES = 5  # reads before one that overlaps with a change is given up


class Clocked(NamedTuple):
    """Content of a rank's file of times: the seconds that it has spent in each part of its work, such as `forward`.

    If `running`, the part with index `part` has been running since the monotonic time `at`.
    """

    running: bool
    part: int
    at: float  # monotonic time up to which `seconds` are added up
    steps: int
    loader: int
    workers: int
    operations: float
    written_bytes: float
    written_s: float
    seconds: tuple[float, ...]

    def until(self, now: float) -> tuple[float, ...]:
        """Return the seconds spent in each part up to the monotonic time `now`, including the part that is running."""
        if not self.running:
            return self.seconds
        own = list(self.seconds)
        own[self.part] += max(0.0, now - self.at)
        return tuple(own)


def times_file(rank: int) -> str:
    """Return the name of a rank's file of times within the attempt's folder."""
    return f"times-{rank}"


def read_times(read: Callable[[], bytes]) -> Clocked | None:
    """Return the content of a rank's file of times, read by `read`; None before its second step or without a file.

    The rank makes the sequence number odd while it writes; then the file is read again.
    """
    for _ in range(TRIES):
        data = read()
        if len(data) < SIZE:
            return None
        values = _LAYOUT.unpack_from(data)
        if values[STATE] == 0.0 or not all(0 <= value < _LARGEST for value in values):
            return None
        if values[SEQUENCE] % 2 == 0:
            return _clocked(values)
    return None


def _clocked(values: tuple[float, ...]) -> Clocked:
    return Clocked(
        running=values[STATE] == RUNNING,
        part=min(int(values[PART]), len(PARTS) - 1),
        at=values[AT],
        steps=int(values[STEPS]),
        loader=min(int(values[LOADER]), len(LOADERS) - 1),
        workers=int(values[WORKERS]),
        operations=values[OPERATIONS],
        written_bytes=values[BYTES],
        written_s=values[WRITING],
        seconds=values[FIRST:COUNT],
    )
