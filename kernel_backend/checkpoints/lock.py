"""Allow one writer at a time among plain scripts that save into a folder."""

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
    """Lock this folder for saving; raise Conflict if another process has it. A URL has no lock."""
    if "://" in where:
        yield
        return
    make_folder(Path(where))
    with open(Path(where) / LOCK, "ab") as file:
        _lock(file.fileno(), where)  # the system releases it with the process, however that ends
        yield


def _lock(descriptor: int, where: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"another process saves to {where}: let it end, or save to another place") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
