"""Start daemons that end with the test process, together with all of their descendants.

Run as a program, it starts the command in each line of its stdin, and kills all descendants once stdin is closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Guard:
    """Process that starts daemons for the tests, and outlives the test process just long enough to end them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the tests
        )

    def start(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> int:
        """Start a daemon that stays in the foreground, and return its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"command": [str(word) for word in command], "log": str(log), "environment": dict(environment)}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """Kill all daemons and their descendants."""
        self._process.communicate(timeout=60)


def descendants() -> list[int]:
    """Return all descendants of this process; orphans among them have become its children."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(path.parent.name))
    found = list(parents.get(os.getpid(), []))
    for pid in found:
        found += parents.get(pid, [])
    return found


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def die_with_guard() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    lines = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not readable:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *requests, lines = (lines + data).split(b"\n")
        for each in map(json.loads, requests):
            with open(each["log"], "ab") as log:
                process = subprocess.Popen(
                    each["command"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=each["environment"],
                    start_new_session=True,
                    preexec_fn=die_with_guard,
                )
            print(process.pid, flush=True)
            process.returncode = 0  # it is reaped above, with all others
    while pids := descendants():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main()
