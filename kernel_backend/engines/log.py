"""Read a log file that may still grow, from an offset or at its end, without splitting characters."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import NamedTuple

CHUNK = 256 * 1024  # bytes of a log in one answer that goes on from an offset
_CONTINUES = bytes(range(0b1000_0000, 0b1100_0000))  # bytes that begin no character of UTF-8


class Piece(NamedTuple):
    """Text read from a log, the offset after it, and the size of the log now."""

    text: str
    offset: int
    size: int


def read_on(path: Path, offset: int, ended: bool) -> Piece:
    """Return up to CHUNK bytes from an offset on, to the end of a line; a longer line is cut.

    `ended` says that nothing will be appended. Raises FileNotFoundError.
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
    """Return the last `tail` bytes, from the beginning of a line on; of a line longer than that, its end.

    `ended` says that nothing will be appended. Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = file.seek(max(0, size - tail - 1))  # one more: it may be the end of the line before
        data = file.read(size - begin)
    if size > tail:
        data = _from_line(data)
    text, left = _decoded(data, ended)
    return Piece(text, size - left, size - left)


def _from_line(data: bytes) -> bytes:
    """Return the data after the first line break; without one, all but the first byte, from a whole character on."""
    _, _, lines = data.partition(b"\n")
    return lines or data[1:].lstrip(_CONTINUES)


def _decoded(data: bytes, ended: bool) -> tuple[str, int]:
    """Return the text, and the number of bytes left at the end: a character that is not fully written yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=ended)
    return text, len(decoder.getstate()[0])
