"""Find the first tensor that differs between two files of checkpoints, which are read in pieces (safetensors)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kernel_backend.model.versions import check_values

Piece = bytes | memoryview
MOST_HEADER = 64 * 2**20  # bytes


def first_difference(a: Iterable[Piece], b: Iterable[Piece]) -> str | None:
    """Return the name of the first tensor, in the order of the file, whose bytes differ; None if all are equal.

    Format: eight bytes with the header's length (little endian), a JSON header with each tensor's `data_offsets`, then
    data.
    """
    before, after = _Reader(a), _Reader(b)
    headers = [_header(each) for each in (before, after)]
    shapes = [{name: _kind(entry) for name, entry in header.items() if name != "__metadata__"} for header in headers]
    for name in {**shapes[0], **shapes[1]}:
        if shapes[0].get(name) != shapes[1].get(name):
            return name
    offset = _first_differing(before.rest(), after.rest())
    if offset is None:
        return None
    places: dict[str, list[int]] = {name: kind[2] for name, kind in shapes[0].items()}
    return next((name for name, (begin, end) in places.items() if begin <= offset < end), None)


def _header(reader: _Reader) -> dict[str, Any]:
    """Return the header of a file; raise ValueError if it is invalid, or larger than any that Daylight writes."""
    size = int.from_bytes(reader.take(8), "little")
    if size > MOST_HEADER:
        raise ValueError(f"a header of {size} bytes, and {MOST_HEADER} is the limit")
    data = reader.take(size)
    check_values(data, MOST_HEADER // 16)
    return dict(json.loads(data))


def _kind(entry: dict[str, Any]) -> tuple[str, list[int], list[int]]:
    return entry["dtype"], entry["shape"], entry["data_offsets"]


def _first_differing(a: Iterator[bytes], b: Iterator[bytes]) -> int | None:
    offset, left, right = 0, b"", b""
    while True:
        left, right = left or next(a, b""), right or next(b, b"")
        count = min(len(left), len(right))
        if not count:
            return offset if left or right else None
        if left[:count] != right[:count]:
            return offset + next(i for i in range(count) if left[i] != right[i])
        offset, left, right = offset + count, left[count:], right[count:]


class _Reader:
    """Reader that takes given numbers of bytes from a stream whose pieces have other sizes."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces, self._held = iter(pieces), b""

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes; raises ValueError if fewer are left."""
        while len(self._held) < count:
            piece = next(self._pieces, None)
            if piece is None:
                raise ValueError(f"{count} bytes wanted, {len(self._held)} left")
            self._held += piece
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def rest(self) -> Iterator[bytes]:
        """Yield all bytes of the stream that were not read yet."""
        held, self._held = self._held, b""
        yield held
        yield from (bytes(piece) for piece in self._pieces)
