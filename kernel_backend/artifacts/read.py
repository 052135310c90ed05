"""Read an artifact from its folder without following symbolic links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kernel_backend.errors import NotFound
from kernel_backend.model.artifacts import check_name

PIECE = 2**20


def opened(folder: Path, name: str) -> IO[bytes]:
    """Open the artifact's file `name` in `folder`, unless it is a link or no regular file.

    Raises InvalidRequest for an invalid name, and NotFound if there is no such file.
    """
    try:
        descriptor = os.open(folder / check_name(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _gone(name) from error
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise _gone(name)
    return file


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the artifact's bytes in pieces of up to `PIECE` bytes, then close the file."""
    with file:
        while piece := file.read(PIECE):
            yield piece


def _gone(name: str) -> NotFound:
    return NotFound(f"artifact {name!r} was kept, and its file is gone: somebody has taken it out of Daylight's home")
