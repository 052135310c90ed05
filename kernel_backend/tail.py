"""Read files that users write: the new lines of a growing one, a limited piece at a time, or a small one as a whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PIECE = 256 * 1024  # bytes read at once
LONGEST = 2000  # bytes to which a returned line is cut
SMALL = 16 * 2**20  # bytes of a small file


def opened(path: Path) -> BinaryIO:
    """Open a file for reading; raise OSError unless it is a regular one (a pipe would block, a device never end)."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ENXIO, "it is no regular file", str(path))
    return file


def small_file(path: Path, most: int = SMALL) -> bytes:
    """Return the content of a regular file; raise OSError if it has more than `most` bytes, or is none."""
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most // 2**20} MiB", str(path))
    return data


class Tail:
    """Reader of a growing file's lines; an incomplete last line is returned once it is complete."""

    def __init__(self, path: Path, behind: int | None = None, longest: int = LONGEST) -> None:
        """Start at the beginning of the file `path`.

        With `behind`, all but the last `behind` bytes are skipped when more bytes are unread. `longest` limits the
        length of a line.
        """
        self._path, self._behind, self._longest = path, behind, longest
        self._offset = 0
        self._begun = b""

    def new(self, most: int = PIECE) -> Iterator[str]:
        """Yield the complete lines in the next `most` bytes of the file.

        A line that is incomplete at their end is yielded by a later call.
        """
        # Progress bars end lines with a carriage return.
        *lines, begun = (self._begun + self._read(most)).replace(b"\r", b"\n").split(b"\n")
        self._begun = begun[: self._longest]
        return map(self._text, lines)

    def rest(self) -> Iterator[str]:
        """Yield the last line of the file, if it does not end with a line break."""
        return iter([self._text(self._begun)])

    def _read(self, most: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                end = file.seek(0, 2)
                if self._behind is not None:
                    self._offset = max(self._offset, end - self._behind)
                file.seek(self._offset)
                data = file.read(most)
        except FileNotFoundError:
            return b""
        self._offset += len(data)
        return data

    def _text(self, line: bytes) -> str:
        return line[: self._longest].decode(errors="replace")
