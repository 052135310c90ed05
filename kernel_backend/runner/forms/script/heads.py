"""Follow the training loops of a running program: count steps and epochs, and restore its state after a restart.

The head of a loop is where its next iteration begins. A checkpoint is saved at a head, and contains a list of stations.
A station is a loop that the program reaches when it runs again from its top up to that head, with the state that the
program had at that loop. Loops that were finished are skipped, and loops that were running restart with their current
iteration. When the restarted program reaches a station, its state is restored. The last station is the head at which
the checkpoint was saved.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, Protocol

from kernel_backend.definition.script import rewrite
from kernel_backend.definition.script.loops import TrainingLoop, within_training
from kernel_backend.definition.script.rewrite import Site
from kernel_backend.runner.forked_children import in_children
from kernel_backend.runner.forms.script.iterators import generator_function, left, length, moved, over, tracked
from kernel_backend.runner.forms.script.snapshots import Snapshot, Snapshots
from kernel_backend.runner.forms.script.state.blobs import kept, together
from kernel_backend.runner.forms.script.state.tombstones import BeginAnew, NotSaved, unreadable

_SHORT_S = 1.0  # outer iterations shorter than this are not restarted: a checkpoint waits for the next one
_MOST_ENDED = 16  # outermost loops whose states after their ends are kept: each checkpoint holds all of them


@dataclass
class Station:
    """A training loop at which a restarted program gets its saved state back.

    The program runs again from its top. When it reaches this loop, the state saved here is restored. A loop that was
    `finished` is skipped, and its state here is that after the loop.
    """

    key: str
    finished: bool
    snapshot: Snapshot
    returned: bool = False


@dataclass
class Active:
    """Training loop that is running, with its iterator and what is known of its current iteration."""

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
    """Change of the number of epochs in a continued training: the variable that holds it, its old and its new value."""

    name: str
    before: int
    now: int


class HeadListener(Protocol):
    """Interface of the job, which is notified when its program's training loops begin, iterate, end and resume."""

    def ended(self, stations: list[Station]) -> None:
        """Handle the end of the program's only outermost loop, if all its iterations have run.

        A restart from `stations` (loops with saved states) can add iterations to that loop.
        """

    def begun(self) -> None:
        """Handle the start of the program's first training loop; not called in a program that is restarted."""

    def iterated(self, loop: TrainingLoop, frame: FrameType, epoch: bool) -> None:
        """Handle the end of an iteration of a training loop; `epoch` means that it is one of its training."""

    def resumed(self, saved: Mapping[str, Any], tombstones: list[str]) -> None:
        """Continue the training: the restarted program has reached the point at which its checkpoint was saved.

        `saved` is what `more` returned at that point; `tombstones` names the objects that the checkpoint could not
        hold.
        """

    def note(self, text: str) -> None:
        """Send a note to the user."""

    def more(self) -> dict[str, Any]:
        """Return further values to save with the program's state, such as the sizes of its files."""

    def passed(self, saved: Mapping[str, Any]) -> None:
        """Handle that a restarted program has reached one of its stations; `saved` is what `more` returned there."""


class _Nobody:
    def ended(self, stations: list[Station]) -> None: ...

    def begun(self) -> None: ...

    def iterated(self, loop: TrainingLoop, frame: FrameType, epoch: bool) -> None: ...

    def resumed(self, saved: Mapping[str, Any], tombstones: list[str]) -> None: ...

    def note(self, text: str) -> None: ...

    def more(self) -> dict[str, Any]:
        return {}

    def passed(self, saved: Mapping[str, Any]) -> None: ...


class Heads:
    """Follower of a program's training loops, which are rewritten to call its methods when iterations begin and end."""

    def __init__(
        self,
        listener: HeadListener,
        sites: Callable[[], Mapping[str, Site]],
        deepest: int,
        always: bool,
        records: bool = True,
    ) -> None:
        """Set up for a program of which no training loop runs yet.

        `sites` returns the rewritten loops by key; `deepest` is the nesting depth of the innermost ones. With `always`,
        the state is recorded at the start of each iteration of outer loops, else only if iterations take long; without
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
        in_children(self._follow_no_more)

    def frames(self) -> list[FrameType]:
        """Return the stack frames in which training loops run, outermost first."""
        return [each.frame for each in self.active]

    def hooks(self) -> dict[str, Callable[..., Any]]:
        """Return, by name, the functions that the rewritten training loops of the program call."""
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

    def _follow_no_more(self) -> None:
        """Let the loops of a process that the program has forked run as in plain Python: they are not the training."""
        self._listener, self._records, self._replay = _Nobody(), False, []

    def length(self) -> int | None:
        """Return the number of iterations of the inner of two nested running loops; None otherwise, or if unknown."""
        return self.active[-1].length if len(within_training(self.loops())) == 2 else None

    def loops(self) -> list[TrainingLoop]:
        """Return the running training loops, outermost first."""
        return [each.site.loop for each in self.active]

    def replay(self, stations: list[Station], extended: Extended | None = None) -> None:
        """Prepare a restart: when the program reaches a loop in `stations`, the state saved there is restored.

        `extended` is a change of the outermost loop's length, None if it has not changed.
        """
        self._replay, self._extended = list(stations), extended

    @property
    def ended(self) -> int:
        """Return how many outermost training loops have ended."""
        return len(self._finished)

    @property
    def outermost(self) -> bool:
        """Return True while only one training loop is running."""
        return len(self.active) == 1

    def stations(self) -> list[Station] | None:
        """Return the stations for a checkpoint: the loops, with states, by which a restart reaches the present point.

        Return None if some state was not recorded, so that the checkpoint must wait for an iteration of an outer loop.
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
        """Begin the loop with this key. Return True if it must be skipped, as it had ended before the checkpoint.

        Raises BeginAnew if a restarted program reaches another loop than before.
        """
        site, frame = self._sites()[key], sys._getframe(1)
        while self.active and not _is_around(self.active[-1], site, frame):
            self._drop(for_another=True)
        assert self.snapshots is not None
        if self.snapshots.survey(frame) and not self._replay:
            self._listener.begun()
        if self._replay:
            station = self._replay[0]
            if station.key != key:
                raise BeginAnew(
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
        loop = self.active[-1]  # which `begin` has just begun
        loop.items = tracked(items)
        loop.length, loop.over = length(loop.items), over(loop.items)
        return _Items(loop, self._head)

    def head(self, key: str) -> bool:
        """Start an iteration of a `while` loop. The program calls it before the loop's condition; it returns True."""
        loop = self._found(key, sys._getframe(1))
        if loop is not None:
            self._head(loop)
        return True

    def enter(self, key: str) -> bool:
        """Begin the body of a `while` loop. The program calls it after the loop's condition was true; returns True."""
        loop = self._found(key, sys._getframe(1))
        if loop is not None:
            loop.inside = True
        return True

    def leave(self, key: str) -> None:
        """End a loop that has ended normally or by `break`."""
        frame = sys._getframe(1)
        if self._replay and self._replay[0].finished and self._replay[0].key == key:
            self._skip(frame)
            return
        loop = self._found(key, frame)
        if loop is None:
            return
        self._iterated(loop)
        only = len(self.active) == 1 and not self._finished and not self._has_others(key)
        if only and self._records and left(loop.items) == 0:
            self._tell_end(loop)
        self._end(loop)

    def leave_by_return(self, key: str, value: Any) -> Any:
        """End all loops of a function that executes `return value` within the loop with this key; return `value`."""
        frame = sys._getframe(1)
        loop = self._found(key, frame)
        if loop is None:
            return value
        self._iterated(loop)
        while len(self.active) > 1 and self.active[-2].frame is frame:
            self.active.pop()
        self._end(self.active[-1], value, by_return=True)
        return value

    def returns(self, key: str) -> bool:
        """Return True if the loop that a restarted program skips now was left by `return` before."""
        return self._replay[0].returned

    def returned(self, key: str) -> Any:
        """Restore the state after a skipped loop that was left by `return`; return the value that it returned."""
        return self._skip(sys._getframe(1))["value"]

    # Heads

    def _head(self, loop: Active) -> None:
        if self._found(loop.site.key, loop.frame) is None:
            return
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
        """End an iteration of a loop and notify the listener, if an iteration has begun."""
        if not loop.inside:
            return
        loop.inside = False
        loop.took = time.monotonic() - loop.began
        self._listener.iterated(loop.site.loop, loop.frame, len(within_training(self.loops())) == 1)

    def _record(self, loop: Active) -> None:
        """Record the program's state at the start of an iteration of `loop`, from which a restart can then continue.

        It is not recorded in innermost loops, nor, unless `always` is set, if iterations of the loop take only a short
        time.
        """
        loop.start = None
        if not self._records or loop.site.loop.depth >= self._deepest:
            return
        if self._always or loop.took is None or loop.took >= _SHORT_S:
            loop.start = self._kept(loop.frame)

    def _end(self, loop: Active, value: Any = None, by_return: bool = False) -> None:
        """End a loop. Record the state after it if other loops may follow: a restart then need not repeat this loop.

        `by_return` means that the loop was left by `return value`.
        """
        self.active.pop()
        key, level = loop.site.key, self._level()
        snapshot = self._kept(loop.frame, value=value) if self._records and self._may_be_followed(key) else None
        level.append(key if snapshot is None else Station(key, True, snapshot, by_return))

    def _may_be_followed(self, key: str) -> bool:
        """Return True if a checkpoint may be possible in a loop that follows the one with this key, which has ended."""
        if self.active:
            around = self.active[-1]
            # In the first iteration, which loops follow each other is not known yet.
            return around.start is not None and (self._always or around.took is None or key in self._followed)
        if len(self._finished) == _MOST_ENDED:
            self._listener.note(
                f"{_MOST_ENDED} training loops have ended one after another, and no checkpoint holds the state after "
                "more: from here on none is saved. Call the function that trains in a `for` loop to have all saved"
            )
        return len(self._finished) < _MOST_ENDED and sum(each.loop.outside for each in self._sites().values()) > 1

    def _has_others(self, key: str) -> bool:
        """Return True if the program has another outermost loop."""
        return any(each.loop.depth == 0 and each.key != key for each in self._sites().values())

    def _tell_end(self, loop: Active) -> None:
        snapshot = self._kept(loop.frame)
        if snapshot is not None:
            self._listener.ended([Station(loop.site.key, False, snapshot)])

    def _drop(self, for_another: bool = False) -> None:
        """Follow the innermost loop no more: it was left by an exception, or is that of a suspended generator.

        `for_another` means that another loop begins now. A checkpoint is possible again in the next iteration of the
        loop around both; without one, it is not.
        """
        dropped = self.active.pop().site
        self._level().append(dropped.key)
        if for_another and not self.active and self._records:
            self._listener.note(
                f"a training loop began before that in {dropped.place} had come to its end (an exception or a "
                "generator): no checkpoint is saved from here on"
            )

    # States

    def _taken(self, frame: FrameType, **more: Any) -> Snapshot:
        assert self.snapshots is not None
        items = [each.items for each in self.active]
        return self.snapshots.take(frame, items, {**self._listener.more(), **more})

    def _kept(self, frame: FrameType, **more: Any) -> Snapshot | None:
        """Return a snapshot of the program, with the values `more`, whose bytes do not change when the program goes on.

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
            raise BeginAnew(
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
        """Restore the state that was saved when the loop to be skipped had ended; return the values saved with it."""
        station = self._replay.pop(0)
        saved, _ = self._restored(station.snapshot, frame)
        self._listener.passed(saved)
        self._level().append(station)
        return saved

    def _restored(self, snapshot: Snapshot, frame: FrameType) -> tuple[dict[str, Any], list[str]]:
        assert self.snapshots is not None
        extended, items = self._extended, [each.items for each in self.active]
        names = {} if extended is None else {extended.name: (extended.before, extended.now)}
        try:
            saved, tombstones = self.snapshots.restore(snapshot, frame, items, names)
        except NotSaved as error:
            raise BeginAnew(str(error)) from error
        except Exception as error:  # such as a class that is there no more
            raise unreadable(error) from error
        for number, each in enumerate(self.active):
            each.items = saved["roots"]["items"][str(number)]
        if extended is not None and self.active:
            _extend(self.active[0], extended)
        return saved, tombstones

    def _found(self, key: str, frame: FrameType) -> Active | None:
        """Return the running loop with this key in `frame`; loops within it, left by exceptions, are removed first.

        Return None for a loop that is no longer followed, as another one began before its end.
        """
        if not any(each.site.key == key and each.frame is frame for each in self.active):
            return None
        while self.active[-1].site.key != key or self.active[-1].frame is not frame:
            self._drop()
        return self.active[-1]

    def _level(self) -> list[Station | str]:
        return self.active[-1].finished if self.active else self._finished

    def _place(self, frame: FrameType) -> str:
        return f"line {frame.f_lineno}"


class _Items:
    """Iterator over the items of a `for` loop of the program; before each item, it starts an iteration of that loop."""

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
    """Let a restored loop over a range continue to the range's new end, as the number of epochs has changed."""
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
