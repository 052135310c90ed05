"""Stream messages to watching clients: each message is read once for all, and wakes only clients that it concerns."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from contextvars import Context
from operator import attrgetter
from typing import NamedTuple

from kernel_backend.model.stream import Message
from kernel_backend.service.notifier import Notifier, wait_for
from kernel_backend.store.base import Store

WATCH_S = 20.0  # seconds after which the store is read even without a notification
PAGE = 200  # messages that are read at once
RECENT = 2000  # newest messages in the cache, for watchers that are nearly up to date
KEPT = 32  # cached pages of older messages, which watchers that start together share


class EncodedMessage(NamedTuple):
    """Message of the store's stream, encoded as JSON once for all clients."""

    seq: int
    experiment: int
    note: bool
    text: str


class WatcherFeed:
    """Reader of stream messages for all watching clients: new messages once for all, older ones page by page."""

    def __init__(self, store: Store, bus: Notifier) -> None:
        self._store, self._bus = store, bus
        self._recent: list[EncodedMessage] = []
        self._floor = self._read = 0  # `_recent` has all messages above `_floor`, up to `_read`
        self._bells: dict[int | None, asyncio.Event] = {}  # events by experiment; None: of all experiments
        self._pages: dict[tuple[int, int | None], asyncio.Task[_Page]] = {}
        self._watchers = 0
        self._pump: asyncio.Task[None] | None = None

    async def frames(self, after: int, experiment: int | None = None) -> AsyncGenerator[EncodedMessage, None]:
        """Yield messages of one experiment or of all: first every stored one above number `after`, then each new one.

        Raises StoreUnavailable.
        """
        with self._watched() as pump:
            while True:
                event = self._bells.setdefault(experiment, asyncio.Event())
                if pump.done():
                    pump.result()  # raises the error that ended it
                page = self._newest(after, experiment) or await self._earlier(after, experiment)
                for frame in page.frames:
                    yield frame
                after = page.upto
                if page.last and not page.frames:
                    await event.wait()

    @contextmanager
    def _watched(self) -> Iterator[asyncio.Task[None]]:
        if self._pump is None or self._pump.done():
            self._recent, self._floor = [], self._read  # messages missed meanwhile are read by pages
            self._pump = asyncio.create_task(self._follow(), name="feed", context=Context())
        self._watchers += 1
        try:
            yield self._pump
        finally:
            self._watchers -= 1
            if not self._watchers and self._pump is not None:
                self._pump.cancel()
                self._pump = None  # not done yet, but the next watcher needs one that continues
                self._bells.clear()

    def _newest(self, after: int, experiment: int | None) -> _Page | None:
        """Return the messages above number `after` from the cache; None if it does not reach back that far."""
        if after < self._floor:
            return None
        new = self._recent[bisect_right(self._recent, after, key=attrgetter("seq")) :]
        wanted = [frame for frame in new if experiment in (None, frame.experiment)]
        return _Page(wanted, max(after, self._read), last=True)

    async def _earlier(self, after: int, experiment: int | None) -> _Page:
        """Return the next page of messages above number `after` from the store.

        Callers that want the same page share one read.
        """
        key = after, experiment
        if key not in self._pages:
            self._pages[key] = asyncio.create_task(asyncio.to_thread(self._page, after, experiment), context=Context())
            if len(self._pages) > KEPT:
                del self._pages[next(iter(self._pages))]
        reading = self._pages[key]
        try:
            page = await asyncio.shield(reading)  # a watcher that leaves must not cancel the read for others
        except Exception:
            self._pages.pop(key, None)
            raise
        if page.last and self._pages.get(key) is reading:
            del self._pages[key]  # the last page will grow
        return page

    def _page(self, after: int, experiment: int | None) -> _Page:
        last = self._store.last_seq()  # read first: the page is complete up to this number
        found = list(map(_frame, self._store.messages(after, experiment, PAGE)))
        newest = found[-1].seq if found else after
        return _Page(found, newest, last=False) if len(found) == PAGE else _Page(found, max(newest, last), last=True)

    # Following new messages

    async def _follow(self) -> None:
        """Read new messages as they are stored, and wake the clients that they concern."""
        try:
            last = await asyncio.to_thread(self._store.last_seq)
            self._recent, self._floor, self._read = [], last, last
            self._wake(set(self._bells))
            while True:
                event = self._bus.listen()
                new = list(map(_frame, await asyncio.to_thread(self._store.messages, self._read, None, PAGE)))
                if new:
                    self._take(new)
                else:
                    await wait_for(event, WATCH_S)
        finally:
            self._wake(set(self._bells))

    def _take(self, new: list[EncodedMessage]) -> None:
        self._recent += new
        self._read = new[-1].seq
        if len(self._recent) > 2 * RECENT:
            self._floor = self._recent[-RECENT - 1].seq
            self._recent = self._recent[-RECENT:]
        self._wake({None, *(frame.experiment for frame in new)})

    def _wake(self, whom: set[int | None]) -> None:
        for experiment in whom:
            event = self._bells.pop(experiment, None)
            if event is not None:
                event.set()


class _Page(NamedTuple):
    """Consecutive messages of the stream, without gaps up to message number `upto`."""

    frames: list[EncodedMessage]
    upto: int
    last: bool  # no message follows this page


def _frame(message: Message) -> EncodedMessage:
    return EncodedMessage(message.seq, message.experiment, message.type == "note", message.model_dump_json())
