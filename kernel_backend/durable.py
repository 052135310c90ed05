"""Write files atomically: a file has its old bytes or its new ones, never a part of them."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

TEMPORARY = ".writing-"  # prefix of the names of unfinished files


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces `path` at the end of the block; after an error `path` is unchanged.

    `mode` sets the permissions, by default those of the umask. A durable file survives a crash of the machine.
    """
    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        # Other users must not open the file before it has its final permissions.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write to disk which files a folder contains, so that created, renamed and removed files survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
