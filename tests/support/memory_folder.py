"""Provide folders in memory, where a commit takes no disk's time; on the disk where memory has no room."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")  # containers often have 64 MiB there
_ROOM = 1 << 30  # bytes, of which a test takes a few millions


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Create an empty folder, and remove it with all that is in it."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    place = _MEMORY if roomy else None
    with tempfile.TemporaryDirectory(prefix="daylight-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
