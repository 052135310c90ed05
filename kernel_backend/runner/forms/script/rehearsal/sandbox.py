"""End a rehearsal before it starts a program or connects: what it gets there is not what a restart would get."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

_BEYOND = {
    "socket.connect": "connects to a network",
    "socket.sendto": "sends to a network",
    "socket.sendmsg": "sends to a network",
    "subprocess.Popen": "starts a program",
    "os.system": "runs a command",
    "os.exec": "starts a program",
    "os.posix_spawn": "starts a program",
}


def confine(refuse: Callable[[str], None]) -> None:
    """Call `refuse` with a reason before this process, or one that it forks, uses a network or runs a program."""
    process = os.getpid()

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _BEYOND and not (event.startswith("socket.") and _is_own(arguments[1])):
            if os.getpid() != process:
                os.kill(process, signal.SIGKILL)
            refuse(f"it {_BEYOND[event]}")

    sys.addaudithook(heard)


def unfit(error: BaseException) -> str:
    """Return why an error says nothing about a restart, "" if it does: what it writes could not be kept apart.

    Examples
    --------
    >>> unfit(OSError(errno.ENOSPC, "No space left on device"))
    'it writes what could not be kept apart: [Errno 28] No space left on device'
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EROFS):
            return f"it writes what could not be kept apart: {seen}"
        seen = seen.__cause__ or seen.__context__
    return ""


def _is_own(address: Any) -> bool:
    """Return True for a Unix socket among temporary files, as processes of one program use it; None is a pair's."""
    if not isinstance(address, str | bytes):
        return address is None
    path = os.fsdecode(address)
    return path.startswith((f"{tempfile.gettempdir()}/", "\0"))
