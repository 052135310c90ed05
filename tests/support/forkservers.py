"""Forkservers that all homes of a test process share: each has imported torch and what trains with it, for seconds.

They are kept apart by their keys, as always: a home whose ranks need another environment starts one of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from pathlib import Path

import psutil

MODULE = "kernel_backend.launch.forkserver"


def share(home: Path) -> None:
    """Have a home that has no forkserver yet use the shared ones."""
    with contextlib.suppress(FileExistsError):
        (home / "forkservers").symlink_to(_folder(), target_is_directory=True)


def is_one(process: psutil.Process) -> bool:
    """Return True for a forkserver, and for a rank of it in the instant before that shows its own command."""
    return MODULE in process.cmdline()


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="daylight-forkservers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # they end when their sockets are gone
    return folder
