"""Share forkservers among all homes of all test processes, since importing torch takes each one seconds.

They are distinguished by their keys as usual: a home whose ranks need another environment starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from pathlib import Path

import psutil

MODULE = "kernel_backend.launch.forkserver"
_VARIABLE = "TESTS_FORKSERVERS"  # tells the processes of pytest-xdist the folder


def share(home: Path) -> None:
    """Let a home without a forkserver use the shared ones."""
    with contextlib.suppress(FileExistsError):
        (home / "forkservers").symlink_to(_folder(), target_is_directory=True)


def is_one(process: psutil.Process) -> bool:
    """Return True for a forkserver, and for a rank of it that does not show its own command line yet."""
    return MODULE in process.cmdline()


@functools.cache
def _folder() -> Path:
    return Path(os.environ[_VARIABLE]) if _VARIABLE in os.environ else make_folder()


def make_folder() -> Path:
    """Create the folder of the shared forkservers, for this process and the processes that it starts."""
    folder = Path(tempfile.mkdtemp(prefix="daylight-forkservers-"))
    os.environ[_VARIABLE] = str(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # they end when their sockets are gone
    return folder
