"""Simulate the service by small servers: one records all bytes that it receives, one sends frames without end."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from kernel_backend import discovery

TOKEN = "the-services-token"


def announce(home: Path, port: int) -> None:
    """Write the home's files that announce a service at this address."""
    (home / "token").write_text(TOKEN)
    discovery.announce(home, "127.0.0.1", port)


class StandIn:
    """Server that answers each request with `answer()`; for None it stays silent until it is closed."""

    def __init__(self, home: Path, answer: Callable[[], bytes | None]) -> None:
        self.heard: list[bytes] = []
        self._answer = answer
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        announce(home, self._listening.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Close the server and its connections."""
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._hear, args=(caller,), daemon=True).start()

    def _hear(self, caller: socket.socket) -> None:
        with caller:
            said = b""
            while not is_whole(said):
                more = caller.recv(65536)
                if not more:  # whoever asked lost patience
                    return
                said += more
            self.heard.append(said)
            answer = self._answer()
            if answer is None:
                self._over.wait(60)
            else:
                caller.sendall(answer)


def is_whole(said: bytes) -> bool:
    """Return True once a request has arrived with all of its body, which may come after its headers."""
    head, end, body = said.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


def http(body: bytes, *headers: str) -> bytes:
    """Return an HTTP response as bytes."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Streamer:
    """Websocket server that sends `frames` frames as fast as they are read, then closes with a code and a reason."""

    def __init__(self, home: Path, frames: int, size: int = 10, code: int = 1000, reason: str = "") -> None:
        self.taken = 0
        self._frames, self._size, self._code, self._reason = frames, size, code, reason
        self._server = serve(self._speak, "127.0.0.1", 0, ping_interval=None, compression=None)
        announce(home, self._server.socket.getsockname()[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Close the server."""
        self._server.shutdown()

    def _speak(self, listener: ServerConnection, *_: Any) -> None:
        try:
            for number in range(self._frames):
                listener.send(f"{number} ".ljust(self._size, "."))
                self.taken = number + 1
            listener.close(self._code, self._reason)
        except ConnectionClosed:
            return
