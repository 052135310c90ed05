"""How the service and an agent talk: a socket a question, JSON in frames of known length, then raw bytes.

    question   frame {"op", "arguments", "bytes"}, then that many bytes
    answer     frame {"bytes"} or {"error"}, frame of JSON with the value, then that many bytes

Nothing here is ever executed or unpickled. Either side may close the socket at any time, which ends the question.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from kernel_backend.engines.base import Unconfirmed
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

HEAD_LIMIT = 2**20  # bytes of a frame that says what follows
VALUE_LIMIT = 16 * 2**20  # and of one with a value
PIECE = 2**20  # bytes of a body at once
MESSAGE_LIMIT = 4000  # characters of an error that people read
_LENGTH = struct.Struct(">I")
# The errors that an agent may answer with: what is found in a user's area, and nothing about who may do what.
_ERRORS = {
    kind.__name__: kind
    for kind in (
        CheckpointDamaged,
        Conflict,
        InvalidRequest,
        NoEnvironment,
        NotFound,
        PlaceUnavailable,
        SearchFailed,
        Unconfirmed,
    )
}


class ProtocolError(Exception):
    """What came over the socket is not what was to come."""


class Closed(Exception):
    """The other side has closed the socket before all was said."""


class Question(Record):
    """What the service wants."""

    op: str
    arguments: dict[str, Any] = {}
    bytes: int = Field(0, ge=0)  # that follow


class ErrorReply(Record):
    """An error of the agent: one of ours by name, or one of the operating system by its number."""

    error: str
    message: str
    number: int | None = None
    file: str | None = None
    details: dict[str, Any] = {}


class AnswerHead(Record):
    """How an answer begins."""

    bytes: int = Field(0, ge=0)  # that follow the value
    error: ErrorReply | None = None


class OperationFailed(PlaceUnavailable):
    """An operation that an agent could not do: it is there, and this time it cannot."""


def error_reply(error: Exception) -> ErrorReply:
    """An error as it travels."""
    if isinstance(error, DaylightError):
        return ErrorReply(error=type(error).__name__, message=error.message[:MESSAGE_LIMIT], details=error.details)
    if isinstance(error, OSError):
        file = str(error.filename)[:MESSAGE_LIMIT] if error.filename else None
        return ErrorReply(error="OSError", message=error.strerror or str(error), number=error.errno, file=file)
    return ErrorReply(error=type(error).__name__, message=f"{type(error).__name__}: {error}"[:MESSAGE_LIMIT])


def error_from_reply(trouble: ErrorReply) -> Exception:
    """The error that `error_reply` described, where an agent may say it; Failed for any other."""
    message = trouble.message[:MESSAGE_LIMIT]
    if trouble.error == "OSError" and trouble.number is not None:
        return OSError(trouble.number, message, trouble.file)
    kind = _ERRORS.get(trouble.error)
    if kind is None:
        return OperationFailed(message)
    error = kind(message)
    error.details = trouble.details
    return error


def send(link: socket.socket, record: Record) -> None:
    """Write a record as a frame."""
    send_frame(link, record.model_dump_json().encode())


def send_frame(link: socket.socket, data: bytes) -> None:
    """Write a frame."""
    link.sendall(_LENGTH.pack(len(data)) + data)


def send_bytes(link: socket.socket, pieces: Iterable[bytes | memoryview], size: int) -> None:
    """Write a body of `size` bytes; raises Garbled, too late to be told, where the pieces are not as many."""
    for piece in pieces:
        link.sendall(piece)
        size -= len(piece)
    if size:
        raise ProtocolError(f"a body differs from its length by {size} bytes")


def receive(link: socket.socket, limit: int, until: float | None = None) -> bytes:
    """The next frame; raises Garbled where it is longer than `limit`, Closed, and TimeoutError.

    `until` is by when all of it must have come, as `time.monotonic()` tells it: a byte now and then is no answer.
    """
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, until))
    if length > limit:
        raise ProtocolError(f"a frame of {length} bytes, and {limit} is the limit")
    return _exactly(link, length, until)


def receive_question(link: socket.socket) -> Question:
    """The next question; raises as `receive` does."""
    return _parsed(Question, receive(link, VALUE_LIMIT))


def receive_head(link: socket.socket, until: float) -> AnswerHead:
    """How the next answer begins; raises as `receive` does."""
    return _parsed(AnswerHead, receive(link, HEAD_LIMIT, until))


def receive_bytes(link: socket.socket, size: int) -> Iterator[bytes]:
    """A body of `size` bytes, piece by piece; raises Closed where it is cut off, and TimeoutError."""
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
