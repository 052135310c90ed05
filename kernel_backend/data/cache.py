"""Cache digests of files with the files' `stat` metadata: a file with unchanged metadata is not read again."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# A file that changed shortly before it was read may change again within the same tick of its file system's clock:
# git calls such an entry racily clean. Clocks of network drives differ, and FAT's has steps of 2 s.
RACY_NS = 2 * 10**9
PATIENCE_S = 2.0  # seconds to wait for another writer; after that the cache is not used
_TABLE = """
CREATE TABLE IF NOT EXISTS files (
  path BLOB PRIMARY KEY, size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER, device INTEGER, digest TEXT
) WITHOUT ROWID
"""


class StatSignature(NamedTuple):
    """Metadata by which a change of a file is detected; times are in nanoseconds."""

    size: int
    mtime: int
    ctime: int
    inode: int
    device: int

    def settled(self, now: int) -> bool:
        """Return True if changes of the file after time `now` (nanoseconds) will certainly show in its metadata.

        A file changed shortly before `now` may change again within the resolution of its time stamps.
        """
        return max(self.mtime, self.ctime) < now - RACY_NS


class CacheEntry(NamedTuple):
    """Metadata of a file, with the digest of its bytes."""

    looks: StatSignature
    digest: str


def looks(status: os.stat_result) -> StatSignature:
    """Return the metadata of a file by which changes of its content are detected.

    It includes ctime, which programs cannot set back, as they can mtime.
    """
    return StatSignature(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


class StatCache:
    """SQLite database that caches the digests of files.

    If the database is damaged, locked or not writable, no error is raised, and all files are read.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def of(self, paths: Iterable[bytes]) -> dict[bytes, CacheEntry]:
        """Return the cache entries of these files by path; files that are not cached are left out."""
        try:
            with self._opened() as db:
                found = (db.execute("SELECT * FROM files WHERE path = ?", (path,)).fetchone() for path in paths)
                return dict(map(_entry, filter(None, found)))
        except sqlite3.Error as error:
            self._gave_up(error)
            return {}

    def below(self, root: bytes) -> dict[bytes, CacheEntry]:
        """Return the cache entries of a file, or of all files below a folder, by path."""
        inside = root.rstrip(b"/") + b"/"
        query = "SELECT * FROM files WHERE path = ? OR (path >= ? AND path < ?)"
        try:
            with self._opened() as db:
                return dict(map(_entry, db.execute(query, (root, inside, inside[:-1] + b"0"))))
        except sqlite3.Error as error:
            self._gave_up(error)
            return {}

    def change(self, learned: Mapping[bytes, CacheEntry], forgotten: Collection[bytes] = ()) -> None:
        """Store the entries `learned` by path, and remove the entries of the deleted files `forgotten`."""
        if not learned and not forgotten:
            return
        rows = ((path, *entry.looks, entry.digest) for path, entry in learned.items())
        try:
            with self._opened() as db, db:
                db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                db.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in forgotten))
        except sqlite3.Error as error:
            self._gave_up(error)

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        db = sqlite3.connect(self._file or ":memory:", timeout=PATIENCE_S)
        try:
            db.execute("PRAGMA synchronous = OFF")  # entries lost in a power failure are computed again
            db.execute(_TABLE)
        except sqlite3.Error:
            db.close()
            raise
        return contextlib.closing(db)

    def _gave_up(self, error: sqlite3.Error) -> None:
        if self._file is not None and not isinstance(error, sqlite3.OperationalError):  # damaged, not merely in use
            with contextlib.suppress(OSError):
                self._file.unlink()


def _entry(row: tuple[Any, ...]) -> tuple[bytes, CacheEntry]:
    path, *seen, digest = row
    return path, CacheEntry(StatSignature(*seen), digest)
