"""Keep what trainings need on a node's own disk: a folder laid out as a home, one for each service and node."""

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

KEPT_S = 7 * 86400.0  # for snapshots, and other files of trials, since they were last used
FORMING_S = 600.0  # for a launcher to lock the folder of its attempt
_LOCK = "staging.lock"  # locked by the launcher of an attempt to its end
_SHORT_LIVED, _LOCKS = "attempts", "locks"


class NodeHome(NamedTuple):
    """Folder on a node's own disk for one service, with the folders of a home."""

    path: Path

    @classmethod
    def of(cls, root: Path, node: str) -> NodeHome:
        """Create the home of a node below `root`, readable only by its owner.

        Nodes have homes of their own even where they share a disk after all, so that none removes another's files.
        """
        path = root / f"node-{re.sub(r'[^A-Za-z0-9_.-]', '_', node)}"
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path)

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold a lock of this node in the block."""
        locks = self.path / _LOCKS
        locks.mkdir(exist_ok=True)
        with (locks / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def attempt(self, folder: Path) -> Iterator[None]:
        """Mark an attempt's folder as one in use in the block, so that no other launcher removes it."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def clean(self, now: float | None = None) -> list[Path]:
        """Remove the folders of attempts whose launchers have died, and other files that were not used for long.

        Returns what was removed.
        """
        now = time.time() if now is None else now
        dead = [each for each in self._entries(_SHORT_LIVED) if now - _used(each) > FORMING_S and not _in_use(each)]
        kinds = {each.name for each in self.path.iterdir() if each.is_dir()} - {_SHORT_LIVED, _LOCKS}
        old = [each for kind in kinds for each in self._entries(kind) if now - _used(each) > KEPT_S]
        for each in (*dead, *old):
            remove(each)
        return [*dead, *old]

    def _entries(self, kind: str) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return list((self.path / kind).iterdir())
        return []


def remove(path: Path) -> None:
    """Remove a file or folder; what cannot be removed stays for a later launcher."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def _used(path: Path) -> float:
    """Return when a file, or any below a folder, was last changed or marked as used."""
    newest = 0.0
    for each in (path, *(Path(where, name) for where, _, names in os.walk(path) for name in names)):
        with contextlib.suppress(OSError):
            newest = max(newest, each.lstat().st_mtime)
    return newest


def _in_use(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
