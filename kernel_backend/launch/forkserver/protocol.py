"""Exchange messages between launcher and forkserver: a request for ranks, their processes, and the exit of each."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

from kernel_backend.launch.rank_spec import RankRequest, RankSpec

_MAX = 1 << 16  # bytes per message; a request's text is sent as a file, since environments may be larger
_MAX_FILES = 253  # the kernel's limit for one message


class Forked(NamedTuple):
    """Message from the forkserver: the ranks exist, with these process ids and handles, in order of rank.

    A handle (pidfd) stays valid even if its pid is used again.
    """

    pids: tuple[int, ...]
    handles: tuple[int, ...]


class Ended(NamedTuple):
    """Message from the forkserver: a rank has exited with this code, which is negative for a signal."""

    rank: int
    code: int


def send_request(connection: socket.socket, request: RankRequest) -> None:
    """Send a request for ranks, together with the open files that the ranks will have."""
    environments = [dict(order.env) for order in request.orders]
    text = {"folder": request.folder, "cwd": request.cwd, "environments": environments}
    with os.fdopen(os.memfd_create("request"), "wb", buffering=0) as file:
        file.write(json.dumps(text).encode())
        files = [each for order in request.orders for each in (order.stdin, order.output)]
        _send(connection, b"start", [file.fileno(), *files])


def receive_request(connection: socket.socket) -> RankRequest | None:
    """Return a launcher's next request, with its files open in this process; None if the launcher hung up.

    Raises ValueError if the request is invalid.
    """
    try:
        message, files = _receive(connection)
    except ConnectionError:
        return None
    if not message:
        return None
    try:
        text = json.loads(_content(files[0]))
        pairs = zip(text["environments"], files[1::2], files[2::2], strict=True)
        return RankRequest(text["folder"], text["cwd"], tuple(RankSpec(*pair) for pair in pairs))
    except (ValueError, LookupError, TypeError, OSError) as error:
        for file in files:
            with contextlib.suppress(OSError):
                os.close(file)
        raise ValueError(f"this is no request: {error!r}") from None


def send_message(connection: socket.socket, message: Forked | Ended) -> None:
    """Send a message to a launcher; drop it if the launcher has closed the connection."""
    handles = message.handles if isinstance(message, Forked) else ()
    text = {"pids": message.pids} if isinstance(message, Forked) else message._asdict()
    with contextlib.suppress(OSError):
        _send(connection, json.dumps(text).encode(), handles, socket.MSG_DONTWAIT)


def receive_messages(connection: socket.socket) -> Forked | Ended | None:
    """Return the forkserver's next message; None if the forkserver is gone.

    Raises BlockingIOError if no message has arrived yet.
    """
    try:
        message, handles = _receive(connection, socket.MSG_DONTWAIT)
    except ConnectionError:
        return None
    if not message:
        return None
    text = json.loads(message)
    return Forked(tuple(text["pids"]), tuple(handles)) if "pids" in text else Ended(**text)


def hung_up(connection: socket.socket) -> bool:
    """Return True if the process at the other end has closed the connection, and all its messages are read."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _content(file: int) -> bytes:
    with os.fdopen(file, "rb") as opened:
        opened.seek(0)
        return opened.read()


def _send(connection: socket.socket, message: bytes, files: Sequence[int], flags: int = 0) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([message], rights, flags)


def _receive(connection: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    room = socket.CMSG_SPACE(_MAX_FILES * array.array("i").itemsize)
    message, rights, _, _ = connection.recvmsg(_MAX, room, flags | socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for _, _, data in rights:
        files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return message, list(files)
