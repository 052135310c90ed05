"""Bring the objects of an input to this node in the order in which they are needed, and let their readers wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Condition, Thread
from typing import NamedTuple

from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.inputs.node_cache import View
from kernel_backend.inputs.order import Order
from kernel_backend.inputs.store import RemoteStore, Wanted
from kernel_backend.model.sizes import size
from kernel_backend.model.views.starting import duration

THREADS = 32  # objects at once
PINNED_S = 30.0  # how long an object stays after its reader was told that it is here, to open it
_LOOK_S = 1.0


class Object(NamedTuple):
    """Object of an input."""

    key: str  # in the cache
    wanted: Wanted


class State(NamedTuple):
    """How far an input is on its way."""

    text: str  # on progress
    left: float | None = None  # seconds until all of it is here, as far as the rate tells; None: it has not begun
    waiting: int = 0  # readers that wait for objects that are not here
    evicts: bool = False  # objects are removed to make room for others


class Arrival:
    """Objects of one input on their way to this node; thread-safe.

    Whoever reads calls `wait`, which returns once the object is here. With a limit below the size of all objects, those
    that are needed last are evicted for those that are needed first.
    """

    def __init__(
        self, name: str, objects: Mapping[str, Object], view: View, store: RemoteStore, here: set[str], most: int | None
    ) -> None:
        """Set up objects by their paths below the view, of which those in `here` are on this node.

        `most` is the number of bytes that may be here at once; None: all.
        """
        self._name, self._objects, self._view, self._store, self._most = name, objects, view, store, most
        self._changed = Condition()
        self._order = Order(objects)
        for each in here:
            self._order.arrived(each)
        self._bytes = sum(objects[each].wanted.size for each in here)  # of the objects that are here or coming
        self._demanded: dict[str, int] = {}  # number of readers that wait for each object
        self._pinned: dict[int, tuple[str, float]] = {}  # by reader: the last object that it was given, and when
        self._contended: set[str] = set()  # other processes fetch them
        self._arrived, self._total = 0, sum(each.wanted.size for each in objects.values()) - self._bytes
        self._error: DaylightError | None = None
        self._began = time.monotonic()

    def begin(self) -> None:
        """Begin to fetch, in threads that live as long as this process."""
        for _ in range(THREADS):
            Thread(target=self._work, name="inputs", daemon=True).start()

    def complete(self, timeout: float) -> bool:
        """Wait until all objects are here, for `timeout` seconds; return whether they are.

        Raises InvalidRequest, with a sentence for the user, if one cannot be had.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._order.complete or self._error, timeout)
            if self._error and not self._order.complete:
                raise self._error
            return self._order.complete

    def wait(self, reader: int, name: str) -> None:
        """Return once an object is here, and stays until the reader asks for another; raise as `complete` does.

        A name that the input does not have, such as that of a folder, is ignored.
        """
        if name not in self._order:
            return
        with self._changed:
            self._order.read(name)
            self._pinned[reader] = name, time.monotonic()
            self._demanded[name] = self._demanded.get(name, 0) + 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._order.is_here(name) or self._error)
                self._pinned[reader] = name, time.monotonic()
                if not self._order.is_here(name):
                    assert self._error is not None
                    raise self._error
            finally:
                self._demanded[name] -= 1
                if not self._demanded[name]:
                    del self._demanded[name]

    def expect(self, reader: int, names: list[str]) -> None:
        """Take what a reader will read after what it has told before."""
        with self._changed:
            self._order.expect(reader, names)
            self._changed.notify_all()

    def forget(self, reader: int) -> None:
        """Forget a reader that is gone."""
        with self._changed:
            self._order.forget(reader)
            self._pinned.pop(reader, None)

    def state(self) -> State:
        """Return how far it is, with a text such as `fetching train: 3.1 GB of 12.0 GB, 220.0 MB/s, 41 s left`."""
        with self._changed:
            waiting = sum(count for name, count in self._demanded.items() if not self._order.is_here(name))
        rate, evicts = self._rate(), self._most is not None
        left = (self._total - self._arrived) / rate if rate and not evicts else float("inf")
        if evicts and self._arrived > self._total:
            return State(f"reading {self._name} from its store: {size(int(rate))}/s", left, waiting, evicts)
        text = f"fetching {self._name}: {size(self._total)}"
        if self._arrived:
            still = f", {duration(left)} left" if left < float("inf") else ""
            text = f"fetching {self._name}: {size(self._arrived)} of {size(self._total)}, {size(int(rate))}/s{still}"
        return State(text, left, waiting, evicts)

    def _rate(self) -> float:
        passed = time.monotonic() - self._began
        return self._arrived / passed if passed else 0.0

    def _work(self) -> None:
        while (name := self._taken()) is not None:
            each = self._objects[name]
            download = partial(self._store.download, each.wanted, self._took)
            try:
                fetched = self._view.fetch(name, each.key, each.wanted.size, download, wait=name in self._contended)
            except Exception as error:
                self._fail(error if isinstance(error, DaylightError) else InvalidRequest(f"{self._name}: {error}"))
                return
            with self._changed:
                if fetched:
                    self._order.arrived(name)
                else:
                    self._contended.add(name)
                    self._bytes -= each.wanted.size
                    self._order.missing(name)
                self._changed.notify_all()

    def _taken(self) -> str | None:
        """Return the object to fetch next, once there is one and room for it; None if there will be none any more."""
        with self._changed:
            while self._error is None:
                if (name := self._next()) is not None:
                    self._order.fetching(name)
                    self._bytes += self._objects[name].wanted.size
                    return name
                if self._order.complete and self._most is None:
                    return None
                self._changed.wait(None if self._most is None else _LOOK_S)
            return None

    def _next(self) -> str | None:
        for name in self._demanded:
            if not self._order.is_here(name) and not self._order.is_coming(name):
                return name if self._make_room(name, lambda last: True) else None
        if (first := self._order.first_missing()) is None:
            return None
        due = self._order.due(first)
        return first if self._make_room(first, lambda last: self._order.due(last) > due) else None

    def _make_room(self, name: str, may_go: Callable[[str], bool]) -> bool:
        since = time.monotonic() - PINNED_S
        pinned = {each for each, at in self._pinned.values() if at > since} | self._demanded.keys()
        while self._most is not None and self._bytes + self._objects[name].wanted.size > self._most:
            last = self._order.last_here(but=pinned)
            if last is None or not may_go(last):
                return False
            each = self._objects[last]
            self._view.evict(last, each.key, each.wanted.size)
            self._order.missing(last)
            self._bytes -= each.wanted.size
        return True

    def _fail(self, error: DaylightError) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _took(self, count: int) -> None:
        with self._changed:
            self._arrived += count
