"""What a fingerprint is: the sorted list of files, each with its size and digest, and how one differs from another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import xxhash

from kernel_backend.differences.listing import changes, changes_text, read_list

UNREADABLE = "unreadable"  # in the place of a digest

Say = Callable[[str], None]


class File(NamedTuple):
    """A file or object."""

    name: str  # relative to what was declared, and `printable`
    size: int  # bytes
    digest: str  # xxh3-128 of the content, the ETag or version of an object, or UNREADABLE


@dataclass(frozen=True)
class Fingerprint:
    """Data as it was at some moment."""

    files: tuple[File, ...]  # sorted
    read: int = field(default=0, compare=False)  # files whose content was read for it; the others are in the cache

    @cached_property
    def listed(self) -> bytes:
        """The list as it is kept: a tab-separated line a file, with name, size and digest."""
        return "".join(f"{file.name}\t{file.size}\t{file.digest}\n" for file in self.files).encode()

    @cached_property
    def digest(self) -> str:
        """The xxh3-128 of the list."""
        return xxhash.xxh3_128_hexdigest(self.listed)

    @cached_property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size for file in self.files)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The names of files that could not be read."""
        return tuple(file.name for file in self.files if file.digest == UNREADABLE)


def fingerprint_of(files: Iterable[File], read: int = 0) -> Fingerprint:
    """The fingerprint of these files."""
    return Fingerprint(tuple(sorted(files)), read)


def changed_text(path: str, before: bytes, now: bytes) -> str:
    """`/data/leslie: 112 files were added (img_0931.png, ...), ...` of two lists; empty where they are equal."""
    said = changes_text(changes(read_list(before), read_list(now)))
    return f"{path}: {said}" if said else ""


def printable(name: str) -> str:
    """A file's name on one line, whatever it is made of; no two names become one."""
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return escaped.encode("utf-8", "backslashreplace").decode()
