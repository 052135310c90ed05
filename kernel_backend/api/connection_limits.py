"""Limit the connections to the HTTP server: how long those of strangers last, and how many each caller may have."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream
from tornado.web import Application

from kernel_backend.api.body_memory import OF_PAGES
from kernel_backend.peers import user_of

STRANGERS = 256  # unauthenticated connections; fewer if the limit of open files is low
OF_CALLER = 500  # connections of a user or a launcher
HEADER_S = 30.0  # time for a connection to send the headers of a request
FILES = 65_536  # largest limit of open files; a higher one slows down programs that close all descriptors
REST_S = 0.5  # before the next try after `accept` has failed
AT_ONCE = 64  # connections accepted before other events are processed

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger(__name__)


def raise_file_limit() -> None:
    """Raise this process's limit of open files, to at most `FILES`, since the usual limit of 1,024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class UnauthenticatedConnections:
    """Open connections that have not authenticated, oldest first, at most `most`.

    A peer is a Unix user of this machine, or another machine. If there are too many connections, the oldest ones of the
    peer that has most of them are closed. Therefore a peer that opens a thousand connections loses only its own.
    """

    def __init__(self, most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        few = STRANGERS if soft == resource.RLIM_INFINITY else max(1, soft // 4)
        self._most = min(STRANGERS, few) if most is None else most
        self._open: dict[IOStream, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: IOStream) -> None:
        """Count a connection until it is authenticated or closed."""
        self._open[stream] = None
        if len(self._open) > self._most:
            self._forget_closed()
        if len(self._open) > self._most:
            self.evict()

    def known(self, stream: IOStream | None) -> None:
        """Stop counting a connection, as its client has authenticated."""
        self._open.pop(stream, None)  # type: ignore[arg-type]  # None is none of them

    def evict(self) -> int:
        """Close the oldest connections of the peer that has most of them, and return how many were closed.

        At most a quarter of the permitted number (but at least one) is closed in one call.
        """
        self._forget_closed()
        peers: defaultdict[Hashable, list[IOStream]] = defaultdict(list)
        for stream in self._open:
            peers[_peer(stream)].append(stream)
        theirs = max(peers.values(), key=len, default=[])[: max(1, self._most // 4)]
        for stream in theirs:
            del self._open[stream]
            stream.close()
        return len(theirs)

    def _forget_closed(self) -> None:
        for stream in [each for each in self._open if each.closed()]:
            del self._open[stream]


class ConnectionsOfCallers:
    """Connections of users and launchers that have authenticated: at most `most` of each, or the oldest are closed.

    So a user who keeps connections open, such as streams, takes the files of nobody else.
    """

    def __init__(self, most: int = OF_CALLER) -> None:
        self._most = most
        self._callers: WeakKeyDictionary[IOStream, str] = WeakKeyDictionary()
        self._open: dict[str, WeakKeyDictionary[IOStream, None]] = {}  # by caller, oldest first

    def count(self, caller: str, stream: IOStream) -> None:
        """Count a connection for the caller of its newest request: a proxy may have one for several users."""
        before = self._callers.get(stream)
        if before == caller:
            return
        if before is not None:
            self._open[before].pop(stream, None)
        self._callers[stream] = caller
        if caller not in self._open:
            self._open = {each: theirs for each, theirs in self._open.items() if theirs}
        theirs = self._open.setdefault(caller, WeakKeyDictionary())
        theirs[stream] = None
        if len(theirs) > self._most:
            self._evict(theirs)

    def _evict(self, theirs: WeakKeyDictionary[IOStream, None]) -> None:
        for each in [each for each in theirs if each.closed()]:
            del theirs[each]
        for each in list(theirs)[: max(0, len(theirs) - self._most)]:
            del theirs[each]
            each.close()


class LimitedServer(HTTPServer):
    """HTTP server that counts unauthenticated connections and survives a lack of file descriptors."""

    def initialize(self, app: Application, strangers: UnauthenticatedConnections, **options: Any) -> None:  # type: ignore[override]
        """Set the application and the register of unauthenticated connections (`strangers`); `options` are tornado's.

        The application's handlers remove a connection from `strangers` once its client has authenticated, and allow it
        larger bodies.
        """
        self._strangers = strangers
        super().initialize(app, idle_connection_timeout=HEADER_S, max_body_size=OF_PAGES, **options)

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Accept connections on these sockets."""
        for each in sockets:
            self._sockets[each.fileno()] = each
            self._handlers[each.fileno()] = self._accepting(each)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Count a new connection as unauthenticated, and start serving it."""
        self._strangers.add(stream)
        super().handle_stream(stream, address)

    def _accepting(self, listening: socket.socket) -> Any:
        loop, over = IOLoop.current(), asyncio.Event()

        def accept(*_: object) -> None:
            for _try in range(AT_ONCE):
                if over.is_set():
                    return
                try:
                    connection, address = listening.accept()
                except BlockingIOError:
                    return
                except ConnectionAbortedError:
                    continue
                except OSError as error:
                    if error.errno not in _NO_ROOM:
                        raise
                    closed = self._strangers.evict()
                    _log.warning(
                        "no connection can be accepted: %s; %d of strangers are closed", error.strerror, closed
                    )
                    if not closed:
                        rest()
                    return
                self._handle_connection(connection, address)

        def rest() -> None:
            # The pending connection stays readable: retrying at once would take all time and fill the log.
            loop.remove_handler(listening)
            loop.call_later(REST_S, go_on)

        def go_on() -> None:
            if not over.is_set():
                loop.add_handler(listening, accept, IOLoop.READ)

        def end() -> None:
            over.set()
            loop.remove_handler(listening)

        loop.add_handler(listening, accept, IOLoop.READ)
        return end


def _peer(stream: IOStream) -> Hashable:
    """Return the peer of a connection: a Unix user of this machine, or another machine."""
    try:
        user = user_of(stream.socket)
        return user if user is not None else stream.socket.getpeername()[0]
    except OSError:
        return "gone"
