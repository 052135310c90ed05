"""Where a forkserver is found: a socket for its owner alone, and the lock of the one process that opens it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BACKLOG = 64  # launchers that may ask while torch is being imported
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class ForkserverEndpoint(NamedTuple):
    """The files of one forkserver: `KEY.sock`, `KEY.lock` and `KEY.log` in a folder of its user's (0700)."""

    folder: Path
    key: str

    @classmethod
    def at(cls, home: Path, key: str) -> ForkserverEndpoint:
        """The door of the forkserver with this key; its folder is made where it is missing."""
        folder = home / "forkservers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        return cls(folder, key)

    @property
    def address(self) -> Path:
        """What launchers connect to."""
        return self.folder / f"{self.key}.sock"

    @property
    def log(self) -> Path:
        """The forkserver's own output; it goes when all went well."""
        return self.folder / f"{self.key}.log"

    def connect(self) -> socket.socket | None:
        """A line to the forkserver; None where none listens. Raises OSError where somebody else's does."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with _short(self.address) as name:
                line.connect(name)
            _must_be_mine(line)
        except (FileNotFoundError, ConnectionRefusedError):
            line.close()
            return None
        except BaseException:
            line.close()
            raise
        return line

    def lock(self) -> int | None:
        """Become this door's one forkserver: a descriptor to keep open, or None where another is."""
        path = self.folder / f"{self.key}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:  # else its last holder has just removed it
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return None

    def listen(self) -> socket.socket:
        """The socket to accept launchers from; only for the holder of the lock."""
        self.address.unlink(missing_ok=True)  # of a forkserver that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with _short(self.address) as name:
            listener.bind(name)
        self.address.chmod(0o600)
        listener.listen(_BACKLOG)
        return listener

    def remove(self) -> None:
        """Leave nothing behind; only for the holder of the lock, who ends now."""
        for kind in ("sock", "log", "lock"):
            with contextlib.suppress(FileNotFoundError):
                (self.folder / f"{self.key}.{kind}").unlink()


def accept(listener: socket.socket) -> socket.socket | None:
    """The next launcher's line; None where it is not of our user."""
    line, _ = listener.accept()
    try:
        _must_be_mine(line)
    except PermissionError:
        line.close()
        return None
    return line


def _must_be_mine(line: socket.socket) -> None:
    """Raise PermissionError unless the process at the other end is the same user's."""
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    if uid != os.getuid():
        raise PermissionError(f"the forkserver's other end belongs to user {uid}")


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of `path` that fits into a socket's address, however deep its folder lies: 107 bytes are allowed."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
