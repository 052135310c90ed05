"""What reading every byte of a checkpoint has shown, remembered for as long as its files are the same."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path

from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.errors import CheckpointDamaged

REMEMBERED = 10_000  # checkpoints


class Verified:
    """Findings by place and checkpoint: an empty text for a whole one, else what is damaged."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str], tuple[Hashable, str]] = OrderedDict()

    def known(self, place: Checkpoints, manifest: Manifest) -> str | None:
        """What was found before in the very same files; None where they have not been read."""
        found = self._found.get((place.where, manifest.id))
        return found[1] if found and found[0] == _identity(manifest) else None

    def read(self, place: Checkpoints, manifest: Manifest) -> str:
        """Read every byte now; what is damaged, or an empty text."""
        files = _identity(manifest)  # before reading: what changes meanwhile is not what was read
        try:
            place.verify(manifest)
            problem = ""
        except CheckpointDamaged as damage:
            problem = damage.message
        self._remember(place, manifest, files, problem)
        return problem

    def remember(self, place: Checkpoints, manifest: Manifest, problem: str) -> None:
        """What somebody else has found just now."""
        self._remember(place, manifest, _identity(manifest), problem)

    def _remember(self, place: Checkpoints, manifest: Manifest, files: Hashable, problem: str) -> None:
        self._found[place.where, manifest.id] = (files, problem)
        self._found.move_to_end((place.where, manifest.id))
        while len(self._found) > REMEMBERED:
            self._found.popitem(last=False)


def _identity(manifest: Manifest) -> Hashable:
    """What changes when a program touches a file of it; a mark without a suffix, such as `pinned`, is none of those.

    An object store's objects are only ever written whole: there the manifest, which has their digests, stands for them.
    """
    if "://" in manifest.folder:
        return manifest.at, manifest.parts
    found = []
    for file in sorted(Path(manifest.folder).glob("*.*")):
        with contextlib.suppress(OSError):  # it is just being deleted
            stat = file.stat()
            found.append((file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)
