"""Manage a service's folder on a node's own disk; it is organised like the service's home directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KEPT_S = 7 * 86400.0  # time since their last use after which snapshots and other shared files are removed
FORMING_S = 600.0  # time for a launcher to lock the new folder of its attempt
_LOCK = "staging.lock"  # file that an attempt's launcher keeps locked until its end
_SHORT_LIVED, _LOCKS = "attempts", "locks"


class NodeHome(NamedTuple):
    """Folder of one service on a node's own disk, organised like the service's home directory."""

    path: Path

    @classmethod
    def of(cls, root: Path, node: str) -> NodeHome:
        """Create and return the folder of a node below `root`, readable only by its owner.

        Each node has a folder of its own even if nodes share this disk, so that none removes another's files.
        """
        path = root / f"node-{re.sub(r'[^A-Za-z0-9_.-]', '_', node)}"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path)

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold the lock `name` during the block; only one launcher on this node has it at a time."""
        locks = self.path / _LOCKS
        locks.mkdir(exist_ok=True)
        with (locks / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def attempt(self, folder: Path) -> Iterator[None]:
        """Mark the folder of an attempt as in use during the block, so that no other launcher removes it."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    @contextlib.contextmanager
    def in_use(self, folder: Path) -> Iterator[None]:
        """Mark a folder that several attempts use as in use during the block, so that no launcher removes it."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os.utime(file.fileno())
            yield

    def clean(self, now: float | None = None) -> list[Path]:
        """Remove the folders of attempts whose launchers have died, and shared files unused for `KEPT_S` seconds.

        Returns the paths that were removed.
        """
        now = time.time() if now is None else now
        dead = [each for each in self._entries(_SHORT_LIVED) if now - _used(each) > FORMING_S and not _in_use(each)]
        kinds = {each.name for each in self.path.iterdir() if each.is_dir()} - {_SHORT_LIVED, _LOCKS}
        old = [each for kind in kinds for each in self._entries(kind) if _is_old(each, now)]
        for each in (*dead, *old):
            remove(each)
        return [*dead, *old]

    def _entries(self, kind: str) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return list((self.path / kind).iterdir())
        return []


def _is_old(path: Path, now: float) -> bool:
    """Return whether a shared file or folder is not in use, and was last used more than `KEPT_S` seconds ago."""
    mark = path / _LOCK  # each launcher that uses the folder updates this file's time
    return now - (mark.lstat().st_mtime if mark.exists() else _used(path)) > KEPT_S and not _in_use(path)


def remove(path: Path) -> None:
    """Remove a file or folder; what cannot be removed stays, and another launcher tries again later."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def _used(path: Path) -> float:
    """Return the time at which a file, or the newest file below a folder, was last modified."""
    newest = 0.0
    for each in (path, *(Path(where, name) for where, _, names in os.walk(path) for name in names)):
        with contextlib.suppress(OSError):
            newest = max(newest, each.lstat().st_mtime)
    return newest


def _in_use(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False
