"""Follow the training loops of a running program: count steps and epochs at the start of each iteration.

The head of a loop is where its next iteration begins. A checkpoint is saved at a head, and holds a list of stations:
the loops that the program reaches when it runs again from its top, up to that head. Loops that were finished are
skipped; loops that were running restart with their current iteration. At each station the state that the program had
there is restored; the last station is the head at which the checkpoint was saved.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, Protocol

from kernel_backend.definition.script import rewrite
from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.rewrite import Site
from kernel_backend.runner.forms.script.iterators import generator_function, left, length, moved, over, tracked
from kernel_backend.runner.forms.script.snapshots import Snapshot, Snapshots
from kernel_backend.runner.forms.script.state.blobs import kept, together
from kernel_backend.runner.forms.script.state.tombstones import NotSaved

_SHORT_S = 1.0  # outer iterations shorter than this are not restarted: a checkpoint waits for the next one


@dataclass
class Station:
    """Loop that the program reaches when it runs again after a restart, with the state that it had there."""

    key: str
    finished: bool
    snapshot: Snapshot
    returned: bool = False


@dataclass
class Active:
    """Training loop that is running, with its iterator and the progress of its current iteration."""

    site: Site
    frame: FrameType
    items: Any = None  # iterator of a `for` loop
    length: int | None = None  # number of iterations, if known
    over: range | None = None  # the range over which the loop iterates, if any
    inside: bool = False  # an iteration has begun and has not ended
    start: Snapshot | None = None  # state at the start of the current iteration, if recorded
    finished: list[Station | str] = field(default_factory=list)  # loops in the iteration; keys: without their states
    began: float = 0.0
    took: float | None = None  # seconds of the previous iteration


class Extended(NamedTuple):
    """Change of the outermost loop's number of iterations since a checkpoint, and the variable with that number."""

    name: str
    before: int
    now: int


class HeadListener(Protocol):
    """Interface of the job that is notified when the training loops of its program begin, iterate, end and resume."""

    def ended(self, stations: list[Station]) -> None:
        """Handle the normal end of the program's only outermost loop.

        A restart from `stations` can add iterations to that loop.
        """

    def begun(self) -> None:
        """Handle the start of the first training loop, in a program that is not being restarted."""

    def iterated(self, loop: TrainingLoop, frame: FrameType, outermost: bool) -> None:
        """Handle the end of a loop's iteration."""

    def resumed(self, saved: Mapping[str, Any], tombstones: list[str]) -> None:
        """Continue the training: the program has reached the head at which its checkpoint was saved.

        `saved` is what `more` returned then; `tombstones` names the objects that the checkpoint could not hold.
        """

    def note(self, text: str) -> None:
        """Send a note to the user."""

    def more(self) -> dict[str, Any]:
        """Return further state to be saved with a snapshot, such as the sizes of the program's files."""

    def passed(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `more` returned at a loop which the restarted program has just reached."""


class Heads:
    """Functions that a program's rewritten training loops call at the start and end of iterations."""

    def __init__(
        self,
        listener: HeadListener,
        sites: Callable[[], Mapping[str, Site]],
        deepest: int,
        always: bool,
        records: bool = True,
    ) -> None:
        """Set up the functions for a program of which no training loop runs yet.

        `sites` returns the rewritten loops by key; `deepest` is the nesting depth of the innermost ones. With `always`,
        the state is recorded at the start of each iteration of outer loops, else only for long iterations; without
        `records`, never.
        """
        self._listener, self._sites, self._deepest = listener, sites, deepest
        self._always, self._records = always, records
        self.snapshots: Snapshots | None = None
        self.active: list[Active] = []
        self._finished: list[Station | str] = []
        self._followed: set[str] = set()  # keys of loops that another loop may follow in the same iteration
        self._replay: list[Station] = []
        self._extended: Extended | None = None
        self._head_of: Active | None = None  # the loop at whose head the program is

    def frames(self) -> list[FrameType]:
        """Return the stack frames of the running loops."""
        return [each.frame for each in self.active]

    def hooks(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that the rewritten program calls, by name."""
        return {
            rewrite.BEGIN: self.begin,
            rewrite.LOOP: self.loop,
            rewrite.HEAD: self.head,
            rewrite.ENTER: self.enter,
            rewrite.LEAVE: self.leave,
            rewrite.RETURNS: self.returns,
            rewrite.RETURNED: self.returned,
            rewrite.RETURN: self.leave_by_return,
            rewrite.GENERATOR: generator_function,
        }

    def length(self) -> int | None:
        """Return the number of iterations of the inner one of two nested loops; None if it is unknown."""
        return self.active[-1].length if len(self.active) == 2 else None

    def loops(self) -> list[TrainingLoop]:
        """Return the running training loops, outermost first."""
        return [each.site.loop for each in self.active]

    def replay(self, stations: list[Station], extended: Extended | None = None) -> None:
        """Prepare a restart: at each station the program's saved state is restored.

        `extended` is the new length of the outermost loop, None if it is the same.
        """
        self._replay, self._extended = list(stations), extended

    @property
    def outermost(self) -> bool:
        """Return True while only one training loop is running."""
        return len(self.active) == 1

    def stations(self) -> list[Station] | None:
        """Return the stations that a checkpoint must hold now; None if it must wait for an iteration of an outer loop.

        Raises any error of pickling an object.
        """
        here = self._head_of
        if here is None or here is not self.active[-1]:
            return None
        found = list(self._finished)
        for each in self.active[:-1]:
            found.append(each.site.key if each.start is None else Station(each.site.key, False, each.start))
            found += each.finished
        ready = [each for each in found if isinstance(each, Station)]
        if len(ready) < len(found):
            return None
        return [*ready, Station(here.site.key, False, self._taken(here.frame))]

    # Called by the program

    def begin(self, key: str) -> bool:
        """Begin the loop with this key; return True if it must be skipped, as it had ended before the checkpoint."""
        site, frame = self._sites()[key], sys._getframe(1)
        while self.active and not _is_around(self.active[-1], site, frame):
            self._drop()
        assert self.snapshots is not None
        if self.snapshots.survey(frame) and not self._replay:
            self._listener.begun()
        if self._replay:
            station = self._replay[0]
            if station.key != key:
                raise NotSaved(
                    f"the program came to the loop in {site.place}, and before the restart to that in "
                    f"{self._sites()[station.key].place if station.key in self._sites() else station.key}"
                )
            if station.finished:
                return True
        self._followed |= {each for each in self._level() if isinstance(each, str)}
        self.active.append(Active(site, frame))
        return False

    def loop(self, key: str, items: Any) -> Iterator[Any]:
        """Return an iterator over the items of a `for` loop; each item starts an iteration."""
        loop = self._found(key, sys._getframe(1))
        loop.items = tracked(items)
        loop.length, loop.over = length(loop.items), over(loop.items)
        return _Items(loop, self._head)

    def head(self, key: str) -> bool:
        """Start an iteration of a `while` loop; called before its test, and returns True so that the test follows."""
        self._head(self._found(key, sys._getframe(1)))
        return True

    def enter(self, key: str) -> bool:
        """Begin the body of a `while` loop, as its test was true; return True."""
        self.active[-1].inside = True
        return True

    def leave(self, key: str) -> None:
        """End a loop that was exhausted or left by `break`."""
        frame = sys._getframe(1)
        if self._replay and self._replay[0].finished and self._replay[0].key == key:
            self._skip(frame)
            return
        loop = self._found(key, frame)
        self._iterated(loop)
        if len(self.active) == 1 and self._records and left(loop.items) == 0 and not self._has_others(key):
            self._tell_end(loop)
        self._end(loop)

    def leave_by_return(self, key: str, value: Any) -> Any:
        """End all loops of a function that returns from within them; return `value`, which it returns."""
        frame = sys._getframe(1)
        loop = self._found(key, frame)
        self._iterated(loop)
        while len(self.active) > 1 and self.active[-2].frame is frame:
            self.active.pop()
        self._end(self.active[-1], value, by_return=True)
        return value

    def returns(self, key: str) -> bool:
        """Return True if a loop that is being skipped was left by `return`."""
        return self._replay[0].returned

    def returned(self, key: str) -> Any:
        """Restore the state after a skipped loop that was left by `return`, and return the value that was returned."""
        return self._skip(sys._getframe(1))["value"]

    # Heads

    def _head(self, loop: Active) -> None:
        self._found(loop.site.key, loop.frame)
        if self._replay:
            self._restore_head(loop)
            return
        self._head_of = loop
        self._iterated(loop)
        loop.finished = []
        self._record(loop)
        self._head_of = None
        loop.began = time.monotonic()

    def _iterated(self, loop: Active) -> None:
        """End an iteration of a loop, if one has begun."""
        if not loop.inside:
            return
        loop.inside = False
        loop.took = time.monotonic() - loop.began
        self._listener.iterated(loop.site.loop, loop.frame, len(self.active) == 1)

    def _record(self, loop: Active) -> None:
        """Record the program's state at the start of an outer loop's iteration, if its iterations take long."""
        loop.start = None
        if not self._records or loop.site.loop.depth >= self._deepest:
            return
        if self._always or loop.took is None or loop.took >= _SHORT_S:
            loop.start = self._kept(loop.frame)

    def _end(self, loop: Active, value: Any = None, by_return: bool = False) -> None:
        """End a loop; record the state after it if more loops may follow and repeating this one would take too long.

        `by_return` means that the loop was left by `return value`.
        """
        self.active.pop()
        key, level = loop.site.key, self._level()
        around = self.active[-1].start is not None if self.active else self._has_others(key)
        worth = self._records and around and (self._always or key in self._followed or not self.active)
        snapshot = self._kept(loop.frame, value=value) if worth else None
        level.append(key if snapshot is None else Station(key, True, snapshot, by_return))

    def _has_others(self, key: str) -> bool:
        """Return True if the program has another outermost loop."""
        return any(each.loop.depth == 0 and each.key != key for each in self._sites().values())

    def _tell_end(self, loop: Active) -> None:
        finished = [each for each in self._finished if isinstance(each, Station)]
        snapshot = self._kept(loop.frame) if len(finished) == len(self._finished) else None
        if snapshot is not None:
            self._listener.ended([*finished, Station(loop.site.key, False, snapshot)])

    def _drop(self) -> None:
        """Remove the innermost loop, which was left by an exception.

        The next checkpoint must wait for an iteration of the loop around it.
        """
        key = self.active.pop().site.key
        self._level().append(key)

    # States

    def _taken(self, frame: FrameType, **more: Any) -> Snapshot:
        assert self.snapshots is not None
        items = [each.items for each in self.active]
        return self.snapshots.take(frame, items, {**self._listener.more(), **more})

    def _kept(self, frame: FrameType, **more: Any) -> Snapshot | None:
        """Return a snapshot with the values `more`, which later checkpoints will contain.

        If the state cannot be pickled, note the reason and return None.
        """
        try:
            taken = self._taken(frame, **more)
        except Exception as error:  # a snapshot must never end the training
            self._listener.note(f"the state at {self._place(frame)} cannot be saved: {error}")
            return None
        known = together(each for each in self._recorded())
        return Snapshot(taken.graph, kept(taken.blobs, known))

    def _recorded(self) -> Iterator[Snapshot]:
        yield from (each.snapshot for each in self._finished if isinstance(each, Station))
        for loop in self.active:
            if loop.start is not None:
                yield loop.start
            yield from (each.snapshot for each in loop.finished if isinstance(each, Station))

    def _restore_head(self, loop: Active) -> None:
        station = self._replay.pop(0)
        if station.key != loop.site.key or station.finished:
            raise NotSaved(
                f"the program came to the loop in {loop.site.place} in another order than before the restart"
            )
        saved, tombstones = self._restored(station.snapshot, loop.frame)
        loop.start, loop.finished = station.snapshot, []
        loop.began = time.monotonic()
        if self._replay:
            self._listener.passed(saved)
        else:
            self._listener.resumed(saved, tombstones)

    def _skip(self, frame: FrameType) -> dict[str, Any]:
        """Restore the state that was saved after a finished loop; return the values that were saved with it."""
        station = self._replay.pop(0)
        saved, _ = self._restored(station.snapshot, frame)
        self._listener.passed(saved)
        self._level().append(station)
        return saved

    def _restored(self, snapshot: Snapshot, frame: FrameType) -> tuple[dict[str, Any], list[str]]:
        assert self.snapshots is not None
        extended, items = self._extended, [each.items for each in self.active]
        names = {} if extended is None else {extended.name: (extended.before, extended.now)}
        saved, tombstones = self.snapshots.restore(snapshot, frame, items, names)
        for number, each in enumerate(self.active):
            each.items = saved["roots"]["items"][str(number)]
        if extended is not None and self.active:
            _extend(self.active[0], extended)
        return saved, tombstones

    def _found(self, key: str, frame: FrameType) -> Active:
        """Return the running loop with this key in a frame; loops within it, which were left, are ended first."""
        while self.active[-1].site.key != key or self.active[-1].frame is not frame:
            self._drop()
        return self.active[-1]

    def _level(self) -> list[Station | str]:
        return self.active[-1].finished if self.active else self._finished

    def _place(self, frame: FrameType) -> str:
        return f"line {frame.f_lineno}"


class _Items:
    """Iterator over the items of a loop; each item starts an iteration of the loop."""

    def __init__(self, loop: Active, head: Callable[[Active], None]) -> None:
        self._loop, self._head = loop, head

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        loop = self._loop
        self._head(loop)
        item = next(loop.items)
        loop.inside = True
        return item


def _extend(loop: Active, extended: Extended) -> None:
    """Extend a restored loop over a range to the range's new end."""
    remaining = left(loop.items)
    if remaining is not None and loop.over is not None:
        loop.items = moved(loop.items, loop.over[extended.before - remaining :])


def _is_around(loop: Active, site: Site, frame: FrameType) -> bool:
    """Return True if `loop` encloses a loop at `site` in `frame`: in the same function, or in one of its callers."""
    if loop.frame is frame:
        return loop.site.key == site.parent
    caller = frame.f_back
    while caller is not None and caller is not loop.frame:
        caller = caller.f_back
    return caller is not None
