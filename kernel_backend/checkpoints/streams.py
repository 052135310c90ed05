"""Stream bytes in pieces of a few megabytes, with a running count and digest, without copies."""

from __future__ import annotations

from collections.abc import Iterator

import xxhash

from kernel_backend.checkpoints.base import Data, Part, Streamed


def size_of(data: Data) -> int:
    """Return the total size of a part's data in bytes."""
    if isinstance(data, Streamed):
        return data.size
    return sum(memoryview(each).nbytes for each in data)


def slices(data: Data, most: int) -> Iterator[memoryview]:
    """Yield views of the data in order, each of at most `most` bytes, without copying."""
    for each in data:
        view = memoryview(each)
        if view.nbytes == 0:  # such a view cannot be cast
            continue
        view = view.cast("B")
        yield from (view[begin : begin + most] for begin in range(0, view.nbytes, most))


class Digesting:
    """Count and xxh3-128 digest of bytes that come in pieces."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self.size = 0

    def take(self, piece: bytes | memoryview) -> None:
        """Add the next bytes to the count and the digest."""
        self._hash.update(piece)
        self.size += len(piece)

    @property
    def digest(self) -> str:
        """Return the xxh3-128 digest of all bytes taken so far, in hex."""
        return self._hash.hexdigest()

    def part(self, name: str) -> Part:
        """Return the manifest entry of a file that has exactly the bytes taken so far."""
        return Part(name=name, size=self.size, digest=self.digest)
