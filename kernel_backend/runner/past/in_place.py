"""Find the files of a program that a restart would not put back: databases, memory maps, what C libraries hold open.

A checkpoint does not hold their contents, so what was written to them after it stays. The guarantee names them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_backend.model.values import listed
from kernel_backend.runner.past.databases import BESIDE, Version, version
from kernel_backend.runner.past.record import Past
from kernel_backend.runner.past.undo import looks_for

_NOT_UNDONE = "a restart does not undo what was written to {} after its checkpoint"
_SHOWN = 3
_LOCKS = ("lock.mdb", "-lock", ".lock")
_WRITES = os.O_WRONLY | os.O_RDWR


class OpenFile(NamedTuple):
    """Open file of this process, with the flags it was opened with and the number of its mount."""

    fd: int
    path: str
    flags: int
    mount: int


def opened_for_writing() -> Iterator[OpenFile]:
    """Yield the files and other objects that this process has open for writing."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            known = fd_info(int(name))
            if (flags := int(known["flags"], 8)) & _WRITES:
                yield OpenFile(int(name), os.readlink(f"/proc/self/fd/{name}"), flags, int(known["mnt_id"]))


def mapped_for_writing() -> set[str]:
    """Return the paths of files that this process has mapped into its memory and may change there."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    columns = (each.split(None, 5) for each in lines)
    return {each[5] for each in columns if len(each) == 6 and each[1][1] == "w" and each[1][3] == "s"}


def fd_info(fd: int) -> dict[str, str]:
    """Return what the kernel tells of an open file: its flags, its offset and the number of its mount."""
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


class InPlace:
    """Files of a program that a restart would not put back to what they were, as far as is known."""

    def __init__(self, past: Past, followed: Callable[[], Collection[str]]) -> None:
        """Set up for the program whose files `past` records.

        `followed` returns the paths of open files that a restart does put back to their state at its checkpoint.
        """
        self._past, self._followed = past, followed
        self._versions: dict[str, Version] = {}  # of databases, when the program came to its first training loop
        self._told = {each.path for each in opened_for_writing()}  # before the program began, and none of its files
        self._later = 0

    def begin(self) -> list[str]:
        """Begin with the training: what was written before is not repeated. Return what `opened` does."""
        self._versions = {each: version(each) for each in self._past.databases}
        return self._held()

    def written(self) -> list[str]:
        """Return what a restart would not undo: writes to databases and to files that were read, removals, own saves.

        Each file is named once. Own saves are those for which the setup looks: from them the program goes on by itself.
        """
        databases = self._past.databases
        changed = (each for each in databases if version(each) != self._versions.get(each, databases[each]))
        found = self._new([*(changed if databases.keys() - self._told else ()), *self._past.rewritten])
        limits = [_NOT_UNDONE.format(listed(found, _SHOWN))] if found else []
        if gone := self._new(self._past.gone):
            limits.append(
                f"a restart does not bring back {listed(gone, _SHOWN)}, removed or moved after its checkpoint"
            )
        if len(self._past.later) > self._later:
            self._later = len(self._past.later)
            if saves := self._new(filter(None, [looks_for(self._past)])):
                limits.append(f"a restart without a checkpoint leaves {saves[0]}, for which the setup looks")
        return limits

    def checkpoint(self) -> list[str]:
        """Return what a restart from now on would not undo, each file once."""
        self._past.at_checkpoint()
        return self._held()

    def _held(self) -> list[str]:
        """Return what `written` does, with files that the program has open or mapped, and may change at any time."""
        databases = {f"{each}{beside}" for each in self._past.databases for beside in ("", *BESIDE)}
        held = mapped_for_writing() | ({each.path for each in opened_for_writing()} - {*self._followed()})
        files = (each for each in held - databases if os.path.isfile(each) and not each.endswith(_LOCKS))
        found = self._new(filter(self._past.covers, files))
        limits = [_NOT_UNDONE.format(listed(found, _SHOWN))] if found else []
        return [*limits, *self.written()]

    def _new(self, paths: Iterable[str]) -> list[str]:
        """Return paths that were not returned before, as the user knows them."""
        new = sorted({*paths} - self._told)
        self._told |= {*new}
        return [self._past.shown(each) for each in new]
