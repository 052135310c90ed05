"""Lock the checkpoint folder of a plain script, so that only one process saves into it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.checkpoints.directory import make_folder
from kernel_backend.errors import Conflict

LOCK = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}  # errors of file systems without locks


@contextlib.contextmanager
def single_writer(where: str) -> Iterator[None]:
    """Hold the lock of a folder for saving; raise Conflict if another process holds it. A URL is not locked."""
    if "://" in where:
        yield
        return
    make_folder(Path(where))
    with open(Path(where) / LOCK, "ab") as file:
        _lock(file.fileno(), where)  # released when the process ends
        yield


def _lock(descriptor: int, where: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"another process saves to {where}: let it end, or save to another place") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
