"""Relay an experiment's messages to the pages that show it, in batches, and only while a page is open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from kernel_backend.client import Client
from kernel_backend.errors import DaylightError
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.stream import Message

BATCH_S = 0.2  # between batches
BATCH = 500  # messages per batch
BEAT_S = 5.0  # between heartbeats
SAVE_S = 10.0  # between saved states, if only reports have arrived
FIRST_SAVE_S = 2.0  # after which a new page is drawn, which may have missed the first messages
STATE_SAVE_S = 1.0  # between saved states, if other messages have arrived
ABSENT_S = 90.0  # pages send every 20 s, hidden ones once a minute: after this time no page is open


@dataclass(frozen=True)
class RelayPage:
    """Callbacks by which a relay sends messages to pages and saves the state; the relay's threads call them."""

    send: Callable[[dict[str, Any]], None]  # sends a message to every page
    save: Callable[[], None]  # saves the state from which a reloaded page starts
    silence: Callable[[], float]  # returns the seconds since the last message from a page


class MessageRelay:
    """Relay of one experiment's message stream to all pages; `client` creates a client for each start of the stream."""

    def __init__(self, client: Callable[[], Client], number: int, page: RelayPage) -> None:
        self._client, self._number, self._page = client, number, page
        self._lock = Lock()
        self._run: _Run | None = None

    @property
    def goes_on(self) -> bool:
        """Return whether the relay is sending messages to pages now."""
        return self._run is not None and self._run.goes_on

    def watch(self, after: int) -> None:
        """Send all messages after sequence number `after`: start the stream, or restart it there.

        Pages skip repeated messages.
        """
        with self._lock:
            if self._run is None or not self._run.goes_on or after < self._run.position:
                self._begin(after)

    def here(self, after: int) -> None:
        """Restart the message stream if it has ended, for an open page that has all messages up to number `after`."""
        with self._lock:
            if not self.goes_on:
                self._begin(after)

    def stop(self) -> None:
        """Stop sending messages and close the stream."""
        with self._lock:
            if self._run is not None:
                self._run.end()

    def _begin(self, after: int) -> None:
        if self._run is not None:
            self._run.end()
        self._run = _Run(self._client(), self._number, self._page, after)
        self._run.start()


class _Run:
    """Connection to the message stream: one thread reads it from the service, another sends messages to the pages."""

    def __init__(self, client: Client, number: int, page: RelayPage, position: int) -> None:
        self._client, self._number, self._page = client, number, page
        self.position = position  # number of the last message sent
        self._read: SimpleQueue[Message | DaylightError | None] = SimpleQueue()
        self._over = Event()
        self._answered = Event()  # set when the service has answered
        self._beaten = float("-inf")
        self._save_at = time.monotonic() + FIRST_SAVE_S
        self._saved = self.position

    @property
    def goes_on(self) -> bool:
        return not self._over.is_set()

    def start(self) -> None:
        for work in (self._reading, self._sending):
            Thread(target=work, name=f"daylight view of {self._number}", daemon=True).start()

    def end(self) -> None:
        self._over.set()
        self._client.close()

    def _reading(self) -> None:
        end: DaylightError | None = None
        try:
            for message in self._messages():
                self._read.put(message)
        except DaylightError as error:
            end = error
        except Exception as error:  # otherwise the page would wait without end
            end = DaylightError(f"the view in the kernel broke ({type(error).__name__}: {error})")
        self._read.put(end)

    def _messages(self) -> Iterator[Message]:
        """Yield the stream's messages up to the one that ends the experiment."""
        messages = self._client.watch(self.position, self._number)  # opened first, so that no end is missed
        now = self._client.experiment(self._number)
        self._answered.set()
        if now.ended and now.seq <= self.position:
            return
        for message in messages:
            if self._over.is_set():
                return
            yield message
            if _ends(message) or (now.ended and message.seq >= now.seq):
                return

    def _sending(self) -> None:
        try:
            self._send_all()
        finally:
            self.end()  # after any error; the next message of a page starts it again

    def _send_all(self) -> None:
        while self.goes_on:
            found, *end = self._next()
            if found:
                self._send(found)
            if self._answered.is_set() and time.monotonic() - self._beaten >= BEAT_S:
                self._beaten = time.monotonic()
                self._page.send({"type": "beat"})
            if self.position > self._saved and (end or time.monotonic() >= self._save_at):
                self._save_at, self._saved = time.monotonic() + SAVE_S, self.position
                self._page.save()
            if end:
                self._tell(*end)
            if end or self._page.silence() > ABSENT_S:
                self.end()
            self._over.wait(BATCH_S)

    def _next(self) -> tuple[list[Message], *tuple[DaylightError | None, ...]]:
        """Wait a while for messages; return (messages,), or (messages, error) once the stream has ended.

        The error is None if the stream ended normally.
        """
        found: list[Message] = []
        due = min(self._beaten + BEAT_S, self._save_at if self.position > self._saved else float("inf"))
        try:
            item = self._read.get(timeout=min(max(due - time.monotonic(), BATCH_S), BEAT_S))
            while isinstance(item, Message):
                found.append(item)
                if len(found) == BATCH:
                    return (found,)
                item = self._read.get_nowait()
            return found, item
        except Empty:
            return (found,)

    def _send(self, found: list[Message]) -> None:
        messages = [message.to_json() for message in found]
        after, self.position = self.position, found[-1].seq  # set first, since a page may request them again
        self._page.send({"type": "messages", "after": after, "messages": messages})
        if any(message.type != "report" for message in found):
            self._save_at = min(self._save_at, time.monotonic() + STATE_SAVE_S)

    def _tell(self, error: DaylightError | None) -> None:
        if error is not None:
            self._page.send({"type": "closed", "status": error.http_status, "message": error.message})


def _ends(message: Message) -> bool:
    return message.type == "experiment" and message.data.get("state") in EXPERIMENT_ENDED
