"""What a fingerprint is: the sorted list of files, each with its size and digest, and what differs between two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import xxhash

UNREADABLE = "unreadable"  # in the place of a digest

Say = Callable[[str], None]


class File(NamedTuple):
    """A file or object; `name` is relative to what was declared, with bytes that are no UTF-8 as lone surrogates."""

    name: str
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
        lines = ["\t".join((_escaped(file.name), str(file.size), file.digest)) for file in self.files]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")

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


class Difference(NamedTuple):
    """What is not as it was, by name."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        return any(self[:])


def fingerprint_of(files: Iterable[File], read: int = 0) -> Fingerprint:
    """The fingerprint of these files."""
    return Fingerprint(tuple(sorted(files)), read)


def parse(listed: bytes) -> Fingerprint:
    """The fingerprint that was kept as a list; raises ValueError for anything else."""
    lines = listed.decode("utf-8", "surrogateescape").split("\n")
    if lines.pop() != "":
        raise ValueError("the list of files is cut off")
    files = []
    for line in lines:
        name, size, digest = line.split("\t")
        files.append(File(_unescaped(name), int(size), digest))
    return Fingerprint(tuple(files))


def compare(before: Fingerprint, now: Fingerprint) -> Difference:
    """What was added, removed and changed in between."""
    old, new = ({file.name: file for file in each.files} for each in (before, now))
    changed = (name for name, file in new.items() if name in old and old[name] != file)
    return Difference(
        tuple(name for name in new if name not in old), tuple(name for name in old if name not in new), tuple(changed)
    )


def changes(path: str, difference: Difference) -> str:
    """`/data/leslie: 112 files were added (first: img_0931.png), 1 changed (first: a.png)`; empty where nothing was."""
    parts = [
        _counted(names, verb) for names, verb in zip(difference, ("added", "removed", "changed"), strict=True) if names
    ]
    if not parts:
        return ""
    verb = "was" if len(next(filter(None, difference))) == 1 else "were"
    first, *others = parts
    first = first.replace(" ", f" file{'' if verb == 'was' else 's'} {verb} ", 1)
    return f"{path}: {', '.join([first, *others])}"


def shown(name: str) -> str:
    """A name that can be printed, whatever it is made of."""
    return name.encode("utf-8", "backslashreplace").decode()


def _counted(names: Sequence[str], verb: str) -> str:
    return f"{len(names):,} {verb} (first: {shown(names[0])})"


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _unescaped(name: str) -> str:
    parts = name.split("\\\\")
    return "\\".join(part.replace("\\t", "\t").replace("\\n", "\n") for part in parts)
