"""Write files that arrive in pieces from nodes that cannot read the service's home directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kernel_backend.artifacts.read import PIECE
from kernel_backend.checkpoints.streams import Digesting
from kernel_backend.durable import TEMPORARY, sync_folder
from kernel_backend.errors import TooLarge
from kernel_backend.model.launch.staging import LIMIT, news
from kernel_backend.model.reports import ArtifactSaved
from kernel_backend.model.sizes import size as format_size


def append(path: Path, offset: int, data: bytes, room: int = LIMIT) -> int:
    """Append to a file those of the bytes `data` that it does not have yet; return the file's size in bytes.

    `data` begins at the byte `offset` of the file, so that a repeated call adds nothing. A symbolic link that the user
    may have put in place of the file is not followed. Raises OSError, and TooLarge if the file would have more than
    `room` bytes.
    """
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as (file, size):
        if new := news(size, offset, data):
            if size + len(new) > room:
                raise TooLarge(f"{path.name} is too large: {format_size(max(0, room))} are left for it", limit=room)
            file.write(new)
        return os.fstat(file.fileno()).st_size


def sizes(folder: Path, but: str, among: Callable[[str], bool] = bool) -> list[int]:
    """Return the sizes of the files in a folder whose names `among` accepts, except the file named `but`."""
    with os.scandir(folder) as entries:
        others = [each for each in entries if each.name != but and among(each.name)]
        return [each.stat(follow_symlinks=False).st_size for each in others]


def content_file(folder: Path, attempt: int, digest: str) -> Path:
    """Return the path of the temporary file, in a folder of artifacts, that collects the bytes with this digest."""
    return folder / f"{TEMPORARY}{attempt}-{digest}"


def sweep_contents(folder: Path, attempt: int) -> None:
    """Remove incomplete artifact files that attempts other than `attempt` have left in a folder of artifacts."""
    for each in folder.glob(f"{TEMPORARY}*"):
        if not each.name.startswith(f"{TEMPORARY}{attempt}-"):
            each.unlink(missing_ok=True)


def keep_content(content: Path, saved: ArtifactSaved) -> int | None:
    """Turn the complete temporary file `content` into the artifact `saved`, durably on disk, and return None.

    If bytes are missing, return the number of bytes so far. A file with another digest than `saved` was damaged on its
    way: it is removed, and 0 is returned.
    """
    try:
        with _opened(content, os.O_RDONLY) as (file, size):
            if size < saved.size:
                return size
            seen = Digesting()
            while piece := file.read(PIECE):
                seen.take(piece)
            os.fsync(file.fileno())
    except FileNotFoundError:
        if saved.size:
            return 0
        append(content, 0, b"")  # creates the file of an empty artifact, of which no piece is sent
        return keep_content(content, saved)
    if (seen.size, seen.digest) != (saved.size, saved.digest):
        content.unlink(missing_ok=True)
        return 0
    content.replace(content.parent / saved.name)
    sync_folder(content.parent)
    return None


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[tuple[IO[bytes], int]]:
    """Open a regular file with the flags of `os.open`; yield it with its size. Refuse symbolic links and devices."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with open(descriptor, "rb" if flags == os.O_RDONLY else "wb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no file")
        yield file, status.st_size
