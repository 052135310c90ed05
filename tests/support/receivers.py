"""Run small servers that receive webhooks' messages: one that fails on request, and one that answers any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import socketserver
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler


@dataclass
class Message:
    """Request that arrived, with the status of the answer."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def what(self) -> tuple[str, int]:
        """Return the event and the experiment's number of the message; 0 for a test message."""
        return self.json["type"], (self.json["data"] or {"number": 0})["number"]


@dataclass
class Receiver:
    """Receiver on a port of this machine; `answers` are its next statuses, and later requests are answered 200."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = threading.Event()  # a request is being held back
        self._hold: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(20)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def taken(self) -> list[tuple[str, int]]:
        """Return events and experiments of the accepted messages, in order."""
        return [each.what for each in self.messages if each.status < 300]

    def hold(self) -> None:
        """Leave all requests unanswered until `let_go` is called."""

        async def begin() -> None:
            self.held.clear()
            self._hold = asyncio.Event()

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(20)

    def let_go(self) -> None:
        def end() -> None:
            if self._hold is not None:
                self._hold.set()
                self._hold = None

        self._loop.call_soon_threadsafe(end)

    def stop(self) -> None:
        """Close the port, if it is open; the messages stay available."""
        if self._loop.is_closed():
            return
        self.let_go()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _start(self) -> None:
        self._server = HTTPServer(Application([("/.*", _Handler)], receiver=self, log_function=lambda _: None))
        sockets = bind_sockets(self.port, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)

    async def _stop(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()

    async def take(self, message: Message) -> int:
        self.messages.append(message)
        message.status = self.answers.pop(0) if self.answers else 200
        if self._hold is not None:
            self.held.set()
            await self._hold.wait()
        return message.status


class _Handler(RequestHandler):
    async def post(self) -> None:
        receiver: Receiver = self.settings["receiver"]
        self.set_status(await receiver.take(Message(dict(self.request.headers), self.request.body, 0)))
        self.set_header("Location", "http://127.0.0.1:9/elsewhere")


class RawReceiver:
    """Receiver that answers a request to `/N` with the N-th of `answers`: pieces of bytes, and a reset if it is empty.

    `asked` counts the requests by their path.
    """

    def __init__(self, answers: Sequence[Sequence[bytes] | Iterator[bytes]]) -> None:
        self.answers, self.asked = answers, Counter[str]()
        self._server = _RawServer(("127.0.0.1", 0), _RawHandler)
        self._server.receiver = self
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)


class _RawServer(socketserver.ThreadingTCPServer):
    receiver: RawReceiver
    daemon_threads = True


class _RawHandler(socketserver.StreamRequestHandler):
    server: _RawServer

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            path = self._path()
            if not path.startswith("/"):  # no HTTP, such as TLS: not understood
                self.wfile.write(b"what?\r\n")
                return
            self.server.receiver.asked[path] += 1
            pieces = self.server.receiver.answers[int(path[1:])]
            if not pieces:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for piece in pieces:
                self.wfile.write(piece)

    def _path(self) -> str:
        words, length = self.rfile.readline(2000).split(b" "), 0
        if len(words) != 3:
            return ""
        while (line := self.rfile.readline(2000)).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.rfile.read(length)
        return words[1].decode()
