"""Define the protocol of service and agent: a socket per request, JSON in length-prefixed frames, raw bytes.

    request   frame {"op", "arguments", "bytes"}, then that many bytes

    answer    frame {"bytes"} or {"error"}, frame with the value as JSON, then that many bytes

Nothing that is received is executed or unpickled. Service or agent may close the socket at any time, which ends the
request.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from kernel_backend.engines.base import EngineUnavailable, Unconfirmed
from kernel_backend.errors import (
    CheckpointDamaged,
    Conflict,
    DaylightError,
    InvalidRequest,
    NoEnvironment,
    NotFound,
    PlaceUnavailable,
    SearchFailed,
)
from kernel_backend.model.record import Record

R = TypeVar("R", bound=Record)

HEAD_LIMIT = 2**20  # bytes of the first frame of an answer
VALUE_LIMIT = 16 * 2**20  # bytes of a frame with a value
PIECE = 2**20  # bytes of a body received at once
MESSAGE_LIMIT = 4000  # characters of an error message
_LENGTH = struct.Struct(">I")
# Errors that an agent may send: about a user's workspace, never about permissions.
_ERRORS = {
    kind.__name__: kind
    for kind in (
        CheckpointDamaged,
        Conflict,
        EngineUnavailable,
        InvalidRequest,
        NoEnvironment,
        NotFound,
        PlaceUnavailable,
        SearchFailed,
        Unconfirmed,
    )
}


class ProtocolError(Exception):
    """Error: received data does not follow the protocol."""


class Closed(Exception):
    """Error: the process at the other end closed the socket before all data had arrived."""


class Question(Record):
    """Request of the service to an agent: an operation, its arguments, and the length of the body that follows."""

    op: str
    arguments: dict[str, Any] = {}
    bytes: int = Field(0, ge=0)  # length of the body


class ErrorReply(Record):
    """Error in the form in which an agent sends it: a DaylightError by its class name, or an OSError by its errno."""

    error: str
    message: str
    number: int | None = None
    file: str | None = None
    details: dict[str, Any] = {}


class AnswerHead(Record):
    """First frame of an agent's answer: the length of the body that comes last, or the error instead of a value."""

    bytes: int = Field(0, ge=0)  # length of the body, after the value
    error: ErrorReply | None = None


class OperationFailed(PlaceUnavailable):
    """Error: an operation failed in the agent by an error of a class that is not sent as such; it may succeed later."""


def error_reply(error: Exception) -> ErrorReply:
    """Return an error in the form in which an agent sends it to the service."""
    if isinstance(error, DaylightError):
        return ErrorReply(error=type(error).__name__, message=error.message[:MESSAGE_LIMIT], details=error.details)
    if isinstance(error, OSError):
        file = str(error.filename)[:MESSAGE_LIMIT] if error.filename else None
        return ErrorReply(error="OSError", message=error.strerror or str(error), number=error.errno, file=file)
    return ErrorReply(error=type(error).__name__, message=f"{type(error).__name__}: {error}"[:MESSAGE_LIMIT])


def error_from_reply(reply: ErrorReply) -> Exception:
    """Return the error that an agent has sent, as an object of the same class.

    It is an OperationFailed if the class is not one of those that agents may send.
    """
    message = reply.message[:MESSAGE_LIMIT]
    if reply.error == "OSError" and reply.number is not None:
        return OSError(reply.number, message, reply.file)
    kind = _ERRORS.get(reply.error)
    if kind is None:
        return OperationFailed(message)
    error = kind(message)
    error.details = reply.details
    return error


def send(link: socket.socket, record: Record) -> None:
    """Write a record to a socket, as a frame of JSON."""
    send_frame(link, record.model_dump_json().encode())


def send_frame(link: socket.socket, data: bytes) -> None:
    """Write a frame to a socket: the length of the data, then the data."""
    link.sendall(_LENGTH.pack(len(data)) + data)


def send_bytes(link: socket.socket, pieces: Iterable[bytes | memoryview], size: int) -> None:
    """Write a body of `size` bytes to a socket, in pieces.

    Raises ProtocolError if the pieces have another size in total; some or all of them are then sent already.
    """
    for piece in pieces:
        link.sendall(piece)
        size -= len(piece)
    if size:
        raise ProtocolError(f"a body differs from its length by {size} bytes")


def receive(link: socket.socket, limit: int, until: float | None = None) -> bytes:
    """Return the data of the next frame; raise ProtocolError if they are longer than `limit`, Closed, or TimeoutError.

    The whole frame must arrive before the time `until` (of `time.monotonic()`), even if bytes keep coming.
    """
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, until))
    if length > limit:
        raise ProtocolError(f"a frame of {length} bytes, and {limit} is the limit")
    return _exactly(link, length, until)


def receive_question(link: socket.socket) -> Question:
    """Return the next request from a socket; raise the same errors as `receive`."""
    return _parsed(Question, receive(link, VALUE_LIMIT))


def receive_head(link: socket.socket, until: float) -> AnswerHead:
    """Return the first frame of the next answer from a socket; raise the same errors as `receive`."""
    return _parsed(AnswerHead, receive(link, HEAD_LIMIT, until))


def receive_bytes(link: socket.socket, size: int) -> Iterator[bytes]:
    """Yield a body of `size` bytes in pieces; raise Closed if the socket is closed before its end, or TimeoutError."""
    while size:
        piece = link.recv(min(PIECE, size))
        if not piece:
            raise Closed(f"{size} bytes too soon")
        size -= len(piece)
        yield piece


def _exactly(link: socket.socket, size: int, until: float | None) -> bytes:
    pieces = receive_bytes(link, size)
    found: list[bytes] = []
    while True:
        if until is not None:
            link.settimeout(max(0.001, until - time.monotonic()))
        piece = next(pieces, None)
        if piece is None:
            return b"".join(found)
        found.append(piece)


def _parsed(kind: type[R], data: bytes) -> R:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise ProtocolError(f"no {kind.__name__.lower()}: {error.errors(include_url=False)[:1]}") from None
