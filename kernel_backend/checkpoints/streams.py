"""Bytes on their way, some megabytes at a time: counted, digested, and never copied."""

from __future__ import annotations

from collections.abc import Iterator

import xxhash

from kernel_backend.checkpoints.base import Data, Part, Streamed


def size_of(data: Data) -> int:
    """How many bytes all of it is."""
    if isinstance(data, Streamed):
        return data.size
    return sum(memoryview(each).nbytes for each in data)


def slices(data: Data, most: int) -> Iterator[memoryview]:
    """The same bytes in the same order, never more than `most` at once; nothing is copied."""
    for each in data:
        view = memoryview(each)
        if view.nbytes == 0:  # such a view cannot be cast
            continue
        view = view.cast("B")
        yield from (view[begin : begin + most] for begin in range(0, view.nbytes, most))


class Digesting:
    """Counts and digests the bytes that it is shown."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self.size = 0

    def take(self, piece: bytes | memoryview) -> None:
        """See the next bytes."""
        self._hash.update(piece)
        self.size += len(piece)

    @property
    def digest(self) -> str:
        """The xxh3-128 of all of them, in hex."""
        return self._hash.hexdigest()

    def part(self, name: str) -> Part:
        """What a manifest says of them."""
        return Part(name=name, size=self.size, digest=self.digest)
