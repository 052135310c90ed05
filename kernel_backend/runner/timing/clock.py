"""Add up the seconds that this rank spends in each part of its training: data, forward, backward and others.

There is one clock per process, as there is one training. The clock has a current part; entering a part within another
interrupts the outer one, so that the parts sum to the wall time. The time of a validation or a checkpoint is not split
into parts. A change of the part takes about a microsecond and no system call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator
from typing import Protocol, TypeVar

from kernel_backend.model.launch import times as file
from kernel_backend.model.launch.progress import Phase
from kernel_backend.model.times import LOADERS, PARTS, Loader, Part

_NUMBER: dict[Part, int] = {part: number for number, part in enumerate(PARTS)}
_WHOLE = frozenset({_NUMBER["checkpoint"], _NUMBER["validation"]})
_DATA, _OF_STEPS = _NUMBER["data"], [number for number in _NUMBER.values() if number not in _WHOLE]
_STALL = _NUMBER["stall"]

# Copied, as names of this module are found faster, and each step reads them some thirty times.
_SEQUENCE, _PART, _AT, _FIRST = file.SEQUENCE, file.PART, file.AT, file.FIRST
_ident = threading.get_ident

Item = TypeVar("Item")


class Timeline(Protocol):
    """Clock that replaces the wall clock for the parts of a training step, such as one that uses events on a GPU."""

    def mark(self, part: int) -> None:
        """Record that part number `part` of the step (such as forward or backward) begins now."""

    def passed(self) -> Iterator[tuple[int, float]]:
        """Yield number and seconds of each part of a step that has ended since the last call, oldest first."""

    @property
    def oldest(self) -> int:
        """Return the number of the earliest part of a step whose end has not been measured yet."""


class PartBlock(ContextDecorator):
    """Context manager or decorator whose time is counted for one part of the training; can be reused and nested."""

    def __init__(self, clock: StepClock, part: Part) -> None:
        self._clock, self._part = clock, _NUMBER[part]

    def __enter__(self) -> None:
        self._clock.enter(self._part)

    def __exit__(self, *_: object) -> None:
        self._clock.leave()


class StepClock:
    """Clock that sums the seconds of each part of a training's steps, such as data, forward and backward.

    It knows the part in progress, and measures from the second step on.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._timeline: Timeline | None = None
        self._blocks = {part: PartBlock(self, part) for part in PARTS}
        self.detach()

    def attach(self, memory: memoryview, timeline: Timeline | None = None) -> None:
        """Write the sums to `memory` from now on, in the layout of `model/launch/times.py`.

        Call it from the training's thread. With `timeline`, parts of a step are measured by it instead of the wall
        clock.
        """
        self.detach()
        self._view, self._timeline = memory.cast("d"), timeline
        self._thread = _ident()

    def detach(self) -> None:
        """Reset all sums, and ignore all calls until `attach` is called."""
        self._view = memoryview(bytearray(file.SIZE)).cast("d")
        self._timeline = None
        self._thread = 0
        self._stack: list[int] = []  # parts to return to
        self._held = 0  # depth of the stack within a validation or checkpoint; 0 outside
        self._part, self._at = _STALL, self._now()
        self._done = 0  # number of the last step that has ended
        self._sequence = 0
        self._running = False
        self.between: Part = "stall"  # part of a step outside of all blocks: a user's own loop is mostly forward

    def part(self, part: Part) -> PartBlock:
        """Return a context manager, also usable as a decorator, whose time counts for this part of a step."""
        return self._blocks[part]

    def each(self, part: Part, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of an iterable; the time spent waiting for each item counts for this part of a step."""
        number, iterator = _NUMBER[part], iter(items)
        try:
            while True:
                self.enter(number)
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                finally:
                    self.leave()
                yield item
        finally:
            if hasattr(iterator, "close"):
                iterator.close()

    def enter(self, part: int) -> None:
        """Begin part number `part` of a step; it interrupts the part in progress until `leave` is called."""
        if _ident() != self._thread:
            return
        self._stack.append(self._part)
        if self._held:
            return
        if part in _WHOLE:
            self._held = len(self._stack)
        if part != self._part:
            self._switch(part)

    def leave(self) -> None:
        """End the part of a step that was entered last; the part that it interrupted goes on."""
        if _ident() != self._thread or not self._stack:
            return
        outer = self._stack.pop()
        if self._held > len(self._stack):
            self._held = 0
        if not self._held and outer != self._part:
            self._switch(outer)

    def rest(self, part: Part) -> None:
        """Set the part of a step for which time outside of all blocks (`part`, `each`, `enter`) counts."""
        if _ident() != self._thread:
            return
        if self._stack:
            self._stack[0] = _NUMBER[part]
        elif _NUMBER[part] != self._part:
            self._switch(_NUMBER[part])

    @property
    def outside(self) -> bool:
        """Return True if the calling thread is the training's, and is in no block that counts for a part of a step."""
        return not self._stack and _ident() == self._thread

    def phase(self, phase: Phase, step: int) -> None:
        """Set the phase of the training and its step number, as a heartbeat reports them.

        Measuring starts with the second step.
        """
        if _ident() != self._thread:
            return
        begins = phase in ("step", "first step")
        done = step - 1 if begins else step
        if self._running:
            self._view[file.STEPS] += max(0, done - self._done)
        elif phase == "step":
            self._begin()
        self._done = done
        if begins:
            self.rest(self.between)
        elif phase in ("validation", "checkpoint"):
            self.rest("validation" if phase == "validation" else "checkpoint")
        else:
            self.rest("stall")

    def used(self, loader: Loader, workers: int) -> None:
        """Record which kind of data loader the training uses, and how many worker processes it has."""
        self._view[file.LOADER], self._view[file.WORKERS] = LOADERS.index(loader), workers

    def passed(self) -> tuple[float, float] | None:
        """Return the seconds of this training's steps so far, and how many of them were spent waiting for data.

        Return None if the clock does not run. Validations and checkpoints are left out. Call it from the training's
        thread.
        """
        if not self._running or _ident() != self._thread:
            return None
        # The current part is added without a switch, which a timeline of a GPU would follow later.
        current = self._now() - self._at if self._timeline is None else 0.0
        seconds = [self._view[_FIRST + number] + current * (number == self._part) for number in range(len(PARTS))]
        return sum(seconds[number] for number in _OF_STEPS), seconds[_DATA]

    def reassign(self, seconds: float, of: Part, to: Part) -> None:
        """Count seconds that were counted for one part of a step for another one."""
        if self._running and _ident() == self._thread:
            seconds = min(seconds, self._view[_FIRST + _NUMBER[of]])
            self._sequence += 2
            self._view[_SEQUENCE] = self._sequence - 1
            self._view[_FIRST + _NUMBER[of]] -= seconds
            self._view[_FIRST + _NUMBER[to]] += seconds
            self._view[_SEQUENCE] = self._sequence

    def computed(self, operations: int) -> None:
        """Add `operations`, the size of a backward pass's autograd graph, to the count of operations.

        Each operation costs time on the host, which may explain slow steps on a GPU.
        """
        self._view[file.OPERATIONS] += operations * self._running

    def wrote(self, size: int, seconds: float) -> None:
        """Add a written checkpoint: its size in bytes, and the seconds that it took; thread-safe."""
        self._view[file.BYTES] += size
        self._view[file.WRITING] += seconds

    def end(self) -> None:
        """Stop the clock at the end of the training."""
        if self._running and _ident() == self._thread:
            self._switch(_STALL)
            self._view[file.STATE] = file.ENDED
            self._running = False

    def _begin(self) -> None:
        self._at = self._now()
        self._view[file.AT], self._view[file.PART] = self._at, self._part
        self._view[file.STATE] = file.RUNNING
        self._running = True
        if self._timeline is not None:
            self._timeline.mark(self._part)

    def _switch(self, part: int) -> None:
        if not self._running:
            self._part = part
            return
        view = self._view
        self._sequence += 2
        view[_SEQUENCE] = self._sequence - 1
        if self._timeline is not None:
            self._follow(self._timeline, part)
        else:
            now = self._now()
            view[_FIRST + self._part] += now - self._at
            view[_AT] = self._at = now
            view[_PART] = part
        self._part = part
        view[_SEQUENCE] = self._sequence

    def _follow(self, timeline: Timeline, part: int) -> None:
        """Mark the begin of part number `part` on the timeline, and add the seconds of parts measured meanwhile.

        The timeline may lag behind, as the host runs ahead of a GPU.
        """
        timeline.mark(part)
        view = self._view
        for ended, seconds in timeline.passed():
            view[file.FIRST + ended] += seconds
            view[file.AT] = self._at = self._at + seconds
        view[file.PART] = timeline.oldest


CLOCK = StepClock()
# Loader processes are forked from the training's thread, and share its memory-mapped file.
os.register_at_fork(after_in_child=CLOCK.detach)
