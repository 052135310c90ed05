"""Let the processes of a node ask for the objects of an input that is on its way: lines of JSON on a Unix socket."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Any

from kernel_backend.errors import DaylightError, InvalidRequest
from kernel_backend.inputs.arrival import Arrival, State

_SOCKET = "socket"  # in the folder of the view
_numbers = itertools.count()


def serve(arrival: Arrival, folder: Path) -> None:
    """Answer the readers of an input from now on, in threads that live as long as this process.

    `folder` is that of the view, for which this process is serving.
    """

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            reader = next(_numbers)
            try:
                with contextlib.suppress(ConnectionError):
                    for line in self.rfile:
                        self.wfile.write(json.dumps(_answer(arrival, reader, json.loads(line))).encode() + b"\n")
            finally:
                arrival.forget(reader)

    (folder / _SOCKET).unlink(missing_ok=True)  # of a process that was killed
    with _short(folder) as path:
        server = ThreadingUnixStreamServer(path, Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="readers", daemon=True).start()


class Client:
    """Connection of one thread of a reader to the process that brings an input to this node."""

    def __init__(self, folder: Path) -> None:
        """Connect; raise OSError if no process serves the view in `folder`."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            with _short(folder) as path:
                self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rwb")

    def wait(self, name: str) -> None:
        """Return once an object is on this node, where it stays until this connection asks for another.

        Raises OSError if the other process ends meanwhile, and InvalidRequest, with a sentence for the user, if the
        object cannot be had.
        """
        answer = self._asked({"read": name})
        if "error" in answer:
            raise InvalidRequest(answer["error"])

    def expect(self, names: list[str]) -> None:
        """Tell which objects will be read, in their order, after those that were told before."""
        self._asked({"expect": names})

    def state(self) -> State:
        """Return how far the input is."""
        return State(**self._asked({}))

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        answer = self._file.readline()
        if not answer:
            raise ConnectionResetError
        found: dict[str, Any] = json.loads(answer)
        return found


def _answer(arrival: Arrival, reader: int, request: dict[str, Any]) -> dict[str, Any]:
    if "expect" in request:
        arrival.expect(reader, request["expect"])
        return {}
    if "read" not in request:
        return arrival.state()._asdict()
    try:
        arrival.wait(reader, request["read"])
    except DaylightError as error:
        return {"error": error.message}
    return {}


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Provide a short path of the socket: the kernel takes no more than 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)
