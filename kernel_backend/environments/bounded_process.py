"""Run programs that run code of users, such as interpreters and build scripts, with a bound on what they print."""

from __future__ import annotations

import errno
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

MOST = 64 * 2**20  # bytes of output and errors together; the lock of a large environment has one
_PIECE = 2**16


def run(
    command: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program, and return its exit code and what it printed.

    Raises OSError if it cannot be started or prints more than `MOST` bytes, and subprocess.TimeoutExpired; it is killed
    then.
    """
    with tempfile.TemporaryFile() as stdin:
        stdin.write(input.encode())
        stdin.seek(0)
        with subprocess.Popen(
            command, cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                output, errors = _printed([process.stdout, process.stderr], time.monotonic() + timeout)
                code = process.wait(timeout)
            except TimeoutError:
                process.kill()
                raise subprocess.TimeoutExpired([str(each) for each in command], timeout) from None
            except BaseException:
                process.kill()
                raise
    return subprocess.CompletedProcess(command, code, output, errors)


def _printed(pipes: Sequence[IO[bytes] | None], deadline: float) -> list[str]:
    """Return what comes from these pipes until all are closed; raises OSError if it is too much, and TimeoutError."""
    printed = {pipe.fileno(): bytearray() for pipe in pipes if pipe is not None}
    with selectors.DefaultSelector() as waiting:
        for pipe in printed:
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            if time.monotonic() >= deadline:
                raise TimeoutError
            for ready, _ in waiting.select(deadline - time.monotonic()):
                piece = os.read(ready.fd, _PIECE)
                printed[ready.fd] += piece
                if not piece:
                    waiting.unregister(ready.fd)
                if sum(map(len, printed.values())) > MOST:
                    raise OSError(errno.EFBIG, f"it prints more than {MOST // 2**20} MiB")
    return [bytes(each).decode(errors="replace") for each in printed.values()]
