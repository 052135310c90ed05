"""Define fingerprints of data: a sorted list of files with sizes and digests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import xxhash

from kernel_backend.differences.listing import changes, changes_text, read_list

UNREADABLE = "unreadable"  # stored instead of a digest

_ESCAPES = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_ESCAPED = re.compile(r"\\([\\tnr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")

Say = Callable[[str], None]


class File(NamedTuple):
    """File or object of declared data, with its size and digest."""

    name: str  # relative to the declared path, and `printable`
    size: int  # bytes
    digest: str  # xxh3-128 of the content, the ETag or version of an object, or UNREADABLE


@dataclass(frozen=True)
class Fingerprint:
    """Fingerprint of declared data at one time: the list of all its files."""

    files: tuple[File, ...]  # sorted
    read: int = field(default=0, compare=False)  # number of files that were read; the digests of others were cached

    @cached_property
    def listed(self) -> bytes:
        """Return the list of files as it is stored: a tab-separated line for each, with name, size and digest."""
        return "".join(f"{file.name}\t{file.size}\t{file.digest}\n" for file in self.files).encode()

    @cached_property
    def digest(self) -> str:
        """Return the xxh3-128 digest of the list of files."""
        return xxhash.xxh3_128_hexdigest(self.listed)

    @cached_property
    def bytes(self) -> int:
        """Return the total size of all files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return the names of files that could not be read."""
        return tuple(file.name for file in self.files if file.digest == UNREADABLE)


def fingerprint_of(files: Iterable[File], read: int = 0) -> Fingerprint:
    """Return the fingerprint of these files; `read` of them were read, and the digests of the others were cached."""
    return Fingerprint(tuple(sorted(files)), read)


def changed_text(path: str, before: bytes, now: bytes) -> str:
    """Return a text on how the files of declared data at `path` have changed; "" if they have not.

    `before` and `now` are two stored lists of files. Example: `/data/leslie: 112 files were added (img_0931.png, ...)`.
    """
    said = changes_text(changes(read_list(before), read_list(now)), "object" if "://" in path else "file")
    return f"{path}: {said}" if said else ""


def printable(name: str) -> str:
    """Return a file name escaped to fit on one line; different names stay different."""
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return escaped.encode("utf-8", "backslashreplace").decode()


def raw_name(name: str) -> str:
    r"""Return the file name of which `printable` made this text.

    Examples
    --------
    >>> raw_name(printable("a\\b\tc")) == "a\\b\tc"
    True
    """
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1]) or chr(int(found[1][1:], 16)), name)
