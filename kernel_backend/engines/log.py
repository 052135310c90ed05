"""Read a growing log file from an offset or at its end, without splitting characters."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import NamedTuple

CHUNK = 256 * 1024  # bytes returned by a read from an offset
_CONTINUES = bytes(range(0b1000_0000, 0b1100_0000))  # continuation bytes of UTF-8


class Piece(NamedTuple):
    """Text from a log, the offset after it, and the current size of the log."""

    text: str
    offset: int
    size: int


def read_on(path: Path, offset: int, ended: bool) -> Piece:
    """Return up to CHUNK bytes from an offset on, up to the end of a line; a longer line is cut.

    `ended` means that the log will not grow. Raises FileNotFoundError.
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
    """Return at most the last `tail` bytes, from the beginning of a line; of a longer last line, its end.

    `ended` means that the log will not grow. Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = file.seek(max(0, size - tail - 1))  # one more, which may be the line break before
        data = file.read(size - begin)
    if size > tail:
        data = _from_line(data)
    text, left = _decoded(data, ended)
    return Piece(text, size - left, size - left)


def _from_line(data: bytes) -> bytes:
    """Return the data from the next line's beginning on or, without a line break, from the next whole character on."""
    _, _, lines = data.partition(b"\n")
    return lines or data[1:].lstrip(_CONTINUES)


def _decoded(data: bytes, ended: bool) -> tuple[str, int]:
    """Decode UTF-8; return the text, and the number of bytes of an incomplete last character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=ended)
    return text, len(decoder.getstate()[0])
