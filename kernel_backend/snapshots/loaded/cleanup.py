"""Remove definitions of loaded models that were unused for a month, except the most recently used ones."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KEPT = 100  # most recently used definitions that always stay
UNUSED_S = 30 * 86_400.0  # since the last use, after which others are removed
UNFINISHED_S = 86_400.0  # age at which an unfinished folder was left by a killed process


def in_use(folder: Path) -> bool:
    """Return whether a definition exists, and mark it as used, which protects it from removal for a month."""
    with _locked(folder.parent, fcntl.LOCK_SH):
        if not folder.is_dir():
            return False
        with suppress(OSError):  # another user's home may be read-only
            os.utime(folder)
        return True


def remove_unused(root: Path) -> None:
    """Remove unfinished folders, and definitions unused for a month except the last hundred used."""
    with _locked(root, fcntl.LOCK_EX):
        gone = [_set_aside(each) for each in _unused(root)]
    for each in gone:
        shutil.rmtree(each, ignore_errors=True)


def _unused(root: Path) -> Iterator[Path]:
    now = time.time()
    used = {each: each.stat().st_mtime for each in root.iterdir() if each.is_dir()}
    definitions = sorted((each for each in used if each.name.startswith("s_")), key=lambda each: -used[each])
    yield from (each for each in definitions[KEPT:] if now - used[each] > UNUSED_S)
    yield from (each for each in used.keys() - set(definitions) if now - used[each] > UNFINISHED_S)


def _set_aside(folder: Path) -> Path:
    """Rename a folder that is about to be deleted, so that no process imports it half deleted; return the new path."""
    return folder.rename(folder.with_name(f"old-{folder.name}-{os.getpid()}"))


@contextmanager
def _locked(root: Path, how: int) -> Iterator[None]:
    """Lock a folder of definitions during the block; `how` is the mode of `flock`, such as LOCK_SH.

    If the folder cannot be written, nothing is locked.
    """
    opened = -1
    with suppress(OSError):
        opened = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(opened, how)
    try:
        yield
    finally:
        if opened >= 0:
            os.close(opened)
