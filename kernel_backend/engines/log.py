"""Read parts of a log file that may still grow: from an offset on, or its end; characters are never split."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import NamedTuple

CHUNK = 256 * 1024  # bytes returned by a read from an offset
_CONTINUES = bytes(range(0b1000_0000, 0b1100_0000))  # continuation bytes of UTF-8


class Piece(NamedTuple):
    """Part of a log: its text, the byte offset at which it ends, and the current size of the log in bytes."""

    text: str
    offset: int
    size: int


def read_on(path: Path, offset: int, ended: bool) -> Piece:
    """Return the lines of a log from a byte offset on, at most CHUNK bytes in total.

    A line longer than CHUNK is returned in parts. `ended` says that the log does not grow any more, so that its last
    character is complete. Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = file.seek(min(offset, size))
        data = file.read(min(CHUNK, size - begin))
    if begin + len(data) == size:
        text, left = _decoded(data, ended)
        return Piece(text, size - left, size - left)
    data = data[: data.rfind(b"\n") + 1] or data
    text, left = _decoded(data, ended=False)
    return Piece(text, begin + len(data) - left, size)


def read_tail(path: Path, tail: int, ended: bool) -> Piece:
    """Return the last whole lines of a log, at most `tail` bytes; of a last line longer than that, its end.

    `ended` says that the log does not grow any more, so that its last character is complete. Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = file.seek(max(0, size - tail - 1))  # one byte more, which may be the line break before the tail
        data = file.read(size - begin)
    if size > tail:
        data = _from_line(data)
    text, left = _decoded(data, ended)
    return Piece(text, size - left, size - left)


def read_end(path: Path) -> str:
    """Return the last lines of a log, at most CHUNK bytes; "" if it does not exist."""
    return read_tail(path, CHUNK, ended=True).text if path.exists() else ""


def _from_line(data: bytes) -> bytes:
    """Return the bytes after the first line break; without one, all from the first complete UTF-8 character on.

    It is applied to data that was cut out of a log and may begin within a line.
    """
    _, _, lines = data.partition(b"\n")
    return lines or data[1:].lstrip(_CONTINUES)


def _decoded(data: bytes, ended: bool) -> tuple[str, int]:
    """Return bytes as text, and the number of bytes at their end that are an incomplete character and left out.

    With `ended`, such a character is replaced and none is left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=ended)
    return text, len(decoder.getstate()[0])
