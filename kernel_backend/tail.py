"""Read the new lines of a growing file, a limited piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PIECE = 256 * 1024  # bytes read at once
LONGEST = 2000  # bytes to which a returned line is cut


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
