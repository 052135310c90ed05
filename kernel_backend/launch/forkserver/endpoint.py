"""Manage the files of a forkserver: a socket for its owner only, a log, and a lock.

The lock keeps a second forkserver with the same key from running.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BACKLOG = 64  # launchers that may connect while torch is being imported
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class ForkserverEndpoint(NamedTuple):
    """Socket, lock and log of one forkserver: `KEY.sock`, `KEY.lock` and `KEY.log` in a folder of mode 0700."""

    folder: Path
    key: str

    @classmethod
    def at(cls, home: Path, key: str) -> ForkserverEndpoint:
        """Return the endpoint for this key in a folder below `home`, which is created if needed."""
        folder = home / "forkservers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        return cls(folder, key)

    @property
    def address(self) -> Path:
        """Return the path of the socket to which launchers connect."""
        return self.folder / f"{self.key}.sock"

    @property
    def log(self) -> Path:
        """Return the path of the forkserver's log, which is removed on a normal exit."""
        return self.folder / f"{self.key}.log"

    def connect(self) -> socket.socket | None:
        """Return a connection to the forkserver; None if none is listening.

        Raises PermissionError if the process that listens belongs to another user, and OSError.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with _short(self.address) as name:
                connection.connect(name)
            _must_be_mine(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        return connection

    def lock(self) -> int | None:
        """Take the lock that lets only one forkserver exist for this key.

        Returns a file descriptor, which holds the lock as long as it is open; None if another forkserver has it.
        """
        path = self.folder / f"{self.key}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:  # else its last holder has just removed the file
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
        return None

    def listen(self) -> socket.socket:
        """Create the socket and return it, listening; the caller must hold the lock."""
        self.address.unlink(missing_ok=True)  # left by a forkserver that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with _short(self.address) as name:
            listener.bind(name)
        self.address.chmod(0o600)
        listener.listen(_BACKLOG)
        return listener

    def remove(self) -> None:
        """Remove all files of the endpoint; the caller must hold the lock and exit right afterwards."""
        for kind in ("sock", "log", "lock"):
            with contextlib.suppress(FileNotFoundError):
                (self.folder / f"{self.key}.{kind}").unlink()


def accept(listener: socket.socket) -> socket.socket | None:
    """Accept the next launcher's connection and return it; None if the launcher belongs to another user."""
    connection, _ = listener.accept()
    try:
        _must_be_mine(connection)
    except PermissionError:
        connection.close()
        return None
    return connection


def _must_be_mine(connection: socket.socket) -> None:
    """Raise PermissionError unless the process at the other end of the connection belongs to this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    if uid != os.getuid():
        raise PermissionError(f"the forkserver's other end belongs to user {uid}")


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short path to the socket, however deep its folder is; addresses of sockets have at most 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
