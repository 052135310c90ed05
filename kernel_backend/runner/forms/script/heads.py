"""Follow the training loops of a running program: at each head, count steps and epochs, and meet the job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from kernel_backend.definition.script import rewrite
from kernel_backend.definition.script.loops import TrainingLoop
from kernel_backend.definition.script.rewrite import Site
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.script.events import Events


@dataclass
class Active:
    """A training loop that the program is in."""

    site: Site
    frame: FrameType
    inside: bool = False  # an iteration has begun, and not ended


class Heads:
    """The functions that rewritten loops call."""

    def __init__(self, training: ExternalTraining, events: Events, sites: Callable[[], Mapping[str, Site]]) -> None:
        self._training, self._events, self._sites = training, events, sites
        self.active: list[Active] = []

    def loops(self) -> list[TrainingLoop]:
        """Return the training loops that the program is in, outermost first."""
        return [each.site.loop for each in self.active]

    def frames(self) -> list[FrameType]:
        """Return the frames of these loops."""
        return [each.frame for each in self.active]

    def hooks(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by the names that the rewritten program calls."""
        return {
            rewrite.BEGIN: self.begin,
            rewrite.LOOP: self.loop,
            rewrite.HEAD: self.head,
            rewrite.ENTER: self.enter,
            rewrite.LEAVE: self.leave,
            rewrite.RETURNS: self.returns,
            rewrite.RETURNED: self.returned,
            rewrite.RETURN: self.leave_by_return,
        }

    def begin(self, key: str) -> bool:
        """Begin a loop; return True if it shall be skipped."""
        site, frame = self._sites()[key], sys._getframe(1)
        while self.active and not _is_around(self.active[-1], site, frame):
            self.active.pop()  # it was left by an exception
        self.active.append(Active(site, frame))
        return False

    def loop(self, key: str, items: Any) -> Iterator[Any]:
        """Return the items of a `for`, with a head before each."""
        return _Items(self._found(key, sys._getframe(1)), iter(items), self._head)

    def head(self, key: str) -> bool:
        """Pass the head of a `while`, and return True."""
        self._head(self._found(key, sys._getframe(1)))
        return True

    def enter(self, key: str) -> bool:
        """Begin an iteration of a `while` whose test was true, and return True."""
        self.active[-1].inside = True
        return True

    def leave(self, key: str) -> None:
        """Leave a loop at its end, or by `break`."""
        loop = self._found(key, sys._getframe(1))
        self._iterated(loop)
        self.active.pop()

    def leave_by_return(self, key: str, value: Any) -> Any:
        """Leave all loops of a function by returning a value, and return it."""
        frame = sys._getframe(1)
        self._iterated(self._found(key, frame))
        while self.active and self.active[-1].frame is frame:
            self.active.pop()
        return value

    def returns(self, key: str) -> bool:
        """Return whether a skipped loop was left by `return`."""
        return False

    def returned(self, key: str) -> Any:
        """Return the value that a skipped loop was left with."""

    def _found(self, key: str, frame: FrameType) -> Active:
        """Return the loop of this site in a frame, now the innermost."""
        while self.active[-1].site.key != key or self.active[-1].frame is not frame:
            self.active.pop()
        return self.active[-1]

    def _head(self, loop: Active) -> None:
        self._found(loop.site.key, loop.frame)
        self._iterated(loop)

    def _iterated(self, loop: Active) -> None:
        """End an iteration, if one has begun: count its step, and an epoch for one of the outermost loop."""
        if not loop.inside:
            return
        loop.inside = False
        training, events = self._training, self._events
        events.iteration(loop.site.loop, loop.frame)
        outermost, stepped = len(self.active) == 1, bool(events.updates or events.backwards)
        if stepped:
            training.begin_step()
            training.abandon_step() if outermost else training.end_step()
            events.step(training.position.step)
        if outermost:  # nothing but the end of the program is expected after the last one
            training.end_epoch(last=training.position.epoch + 1 >= training.rank.config.epochs)


class _Items:
    """Iterator over a loop's items that passes the loop's head before each."""

    def __init__(self, loop: Active, items: Iterator[Any], head: Callable[[Active], None]) -> None:
        self._loop, self._items, self._head = loop, items, head

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        self._head(self._loop)
        item = next(self._items)
        self._loop.inside = True
        return item


def _is_around(loop: Active, site: Site, frame: FrameType) -> bool:
    """Return whether a loop is around a place of the program: in the same function, or in one that has called it."""
    if loop.frame is frame:
        return loop.site.key == site.parent
    caller = frame.f_back
    while caller is not None and caller is not loop.frame:
        caller = caller.f_back
    return caller is not None
