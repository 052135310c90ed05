"""Define fingerprints of data: a sorted list of files with sizes and digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import xxhash

from kernel_backend.differences.listing import changes, changes_text, read_list

UNREADABLE = "unreadable"  # stored instead of a digest

Say = Callable[[str], None]


class File(NamedTuple):
    """File or object of declared data, with size and digest."""

    name: str  # relative to the declared path, and `printable`
    size: int  # bytes
    digest: str  # xxh3-128 of the content, the ETag or version of an object, or UNREADABLE


@dataclass(frozen=True)
class Fingerprint:
    """List of all files of declared data at one time."""

    files: tuple[File, ...]  # sorted
    read: int = field(default=0, compare=False)  # number of files that were read; the digests of others were cached

    @cached_property
    def listed(self) -> bytes:
        """Return the list as it is stored: one tab-separated line per file, with name, size and digest."""
        return "".join(f"{file.name}\t{file.size}\t{file.digest}\n" for file in self.files).encode()

    @cached_property
    def digest(self) -> str:
        """Return the digest (xxh3-128) of the list."""
        return xxhash.xxh3_128_hexdigest(self.listed)

    @cached_property
    def bytes(self) -> int:
        """Return the total size of all files."""
        return sum(file.size for file in self.files)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return the names of files that could not be read."""
        return tuple(file.name for file in self.files if file.digest == UNREADABLE)


def fingerprint_of(files: Iterable[File], read: int = 0) -> Fingerprint:
    """Return the fingerprint of these files."""
    return Fingerprint(tuple(sorted(files)), read)


def changed_text(path: str, before: bytes, now: bytes) -> str:
    """Describe the changes between two lists: `/data/leslie: 112 files were added (img_0931.png, ...), ...`.

    Empty if they are equal.
    """
    said = changes_text(changes(read_list(before), read_list(now)))
    return f"{path}: {said}" if said else ""


def printable(name: str) -> str:
    """Escape a file name so that it fits on one line; different names stay different."""
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return escaped.encode("utf-8", "backslashreplace").decode()
