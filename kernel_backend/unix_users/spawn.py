"""Start agents through the spawn helper, a privileged process that gets the name of a user and a socket."""

from __future__ import annotations

import socket
from pathlib import Path

from kernel_backend.errors import Forbidden
from kernel_backend.unix_users.agents import Spawn

ANSWER_S = 10.0  # for the helper to start an agent
_ANSWER_LIMIT = 4096  # bytes


def by_helper(path: Path) -> Spawn:
    """Return a function that starts the agent of a user through the spawn helper, which listens at the socket `path`.

    The function raises Forbidden if the helper refuses, and OSError if it does not answer.
    """

    def spawn(user: str, stdin: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as helper:
            helper.settimeout(ANSWER_S)
            try:
                helper.connect(str(path))
                socket.send_fds(helper, [user.encode()], [stdin.fileno()])
                answer = helper.recv(_ANSWER_LIMIT).decode(errors="replace")
            except OSError as error:
                raise OSError(
                    error.errno, f"the spawn helper does not answer: {error.strerror or error}", str(path)
                ) from None
        verdict, _, why = answer.partition(": ")
        if verdict == "refused":
            raise Forbidden(f"nothing can run as {user} here: {why}. Ask an administrator of this hub")
        if verdict != "started":
            raise OSError(f"the spawn helper answered {answer!r}")

    return spawn
