"""Select the data files among all files that a training has read, and digest them within a budget."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kernel_backend.data.base import UNREADABLE, printable
from kernel_backend.data.cache import CacheEntry, StatCache, StatSignature, looks
from kernel_backend.data.declared import CACHE
from kernel_backend.data.folders import digest_of
from kernel_backend.model.facts import Observed, ObservedFile

LISTED = 5_000
LARGEST = 2 * 2**30  # bytes: larger files are identified by size and time
ALTOGETHER = 8 * 2**30  # bytes that are read in total

_SYSTEMS = ("/proc", "/dev", "/sys", "/etc", "/run", "/usr/lib", "/usr/share", "/lib", "/lib64")
_PACKAGES = ("site-packages", "dist-packages", "__pycache__")
_PYTHONS = tuple({sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_ROOT = Path(__file__).parents[2]
_OWN = tuple(str(_ROOT / name) for name in ("kernel_backend", "jupyter_ext", "daylight"))


def is_data(path: str, ours: Iterable[str]) -> bool:
    """Return True if a file that a training has opened may be data.

    Files of the system, of Python, of packages, of Daylight, or in one of the folders `ours`, are no data.
    """
    if any(part in _PACKAGES for part in path.split("/")):
        return False
    return not any(_within(path, folder) for folder in (*_SYSTEMS, *_PYTHONS, *_OWN, *ours))


def installed_in(folders: Iterable[str]) -> list[str]:
    """Return those of the folders that contain installed packages, which are recorded by version, not as data."""
    return [folder for folder in folders if folder and any(Path(folder).glob("*.dist-info"))]


def observed(
    paths: Iterable[str], home: Path, hurry: Callable[[], bool] = lambda: False, overlay: str = ""
) -> Observed:
    """Return records of the files that a training has read, with their present content; deleted files are left out.

    As soon as `hurry()` returns True, the remaining files get no digest. `home` is the home directory with the cache
    of digests. `overlay` is the root folder of the training's overlay, or ""; files below it get their real names.
    """
    found = sorted(set(paths))
    cache = StatCache(home / CACHE)
    reading = _Reading(cache.of(map(os.fsencode, found[:LISTED])), hurry, overlay)
    files = tuple(file for file in map(reading.file, found[:LISTED]) if file is not None)
    cache.change(reading.learned)
    return Observed(files=files, more=len(found[LISTED:]))


def real_name(path: str, overlay: str) -> str:
    """Return the real path of a file below the overlay's root folder `overlay`; other paths are unchanged."""
    return path[len(overlay) :] if overlay and path.startswith(f"{overlay}/") else path


class _Reading:
    """Reader that records files one by one, and digests them until it has read `ALTOGETHER` bytes.

    `learned` has new entries for the cache of digests, by path.
    """

    def __init__(self, known: Mapping[bytes, CacheEntry], hurry: Callable[[], bool], overlay: str) -> None:
        self._known, self._hurry, self._overlay = known, hurry, overlay
        self._budget, self._began = ALTOGETHER, time.time_ns()
        self.learned: dict[bytes, CacheEntry] = {}

    def file(self, path: str) -> ObservedFile | None:
        """Return the record of a file; None if it is deleted, or no regular file."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        digest = self._digest(os.fsencode(path), looks(status))
        name = printable(real_name(path, self._overlay))
        return ObservedFile(path=name, size=status.st_size, mtime=status.st_mtime, digest=digest)

    def _digest(self, path: bytes, seen: StatSignature) -> str | None:
        known = self._known.get(path)
        if known is not None and known.looks == seen:
            return known.digest
        if seen.size > min(LARGEST, self._budget) or self._hurry():
            return None
        self._budget -= seen.size
        entry = digest_of(path)
        if entry is None or entry.digest == UNREADABLE:
            return None
        if entry.looks.settled(self._began):
            self.learned[path] = entry
        return entry.digest


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
