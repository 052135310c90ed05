"""Write files as a TAR archive whose length is known before its first byte, piece by piece."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * BLOCK)


class TarMember(NamedTuple):
    """File of an archive: its name, size and bytes, which are read when it is its turn."""

    name: str
    size: int
    pieces: Iterable[bytes | memoryview]


def tar_size(members: Sequence[TarMember]) -> int:
    """Return the number of bytes of an archive.

    Examples
    --------
    >>> members = [TarMember("a", 5, [b"hello"])]
    >>> tar_size(members), sum(map(len, tar_pieces(members)))
    (2048, 2048)
    """
    return sum(BLOCK + each.size + _padding(each.size) for each in members) + len(_END)


def tar_pieces(members: Sequence[TarMember]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an archive; a piece is valid until the next one is requested."""
    for member in members:
        about = tarfile.TarInfo(member.name)
        about.size = member.size
        yield about.tobuf(tarfile.GNU_FORMAT)
        yield from member.pieces
        yield bytes(_padding(member.size))
    yield _END


def _padding(size: int) -> int:
    return -size % BLOCK
