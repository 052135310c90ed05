"""Start a program, and end it with all of its descendant processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial

import psutil

from kernel_backend.errors import InvalidDefinition
from kernel_backend.parent_death import adopt_descendants, die_with

_LOOK_S = 0.02
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied)


class ProgramProcess:
    """Program of this rank, run as a child process.

    If a process of the program dies, that process's children become children of the rank, so that they can be killed
    too.
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Start the program with the arguments `words` in the current folder; raise InvalidDefinition if that fails."""
        adopt_descendants()
        try:
            self._child = subprocess.Popen(
                words,
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )
        except OSError as error:
            raise InvalidDefinition(f"{words[0]} cannot be started: {error.strerror or error}") from None

    def code(self) -> int | None:
        """Return the program's exit code, negative for a signal; None while it runs."""
        return self._child.poll()

    def seconds(self) -> float:
        """Return the CPU time, in seconds, that all living processes of the program have used."""
        found = 0.0
        for each in self._processes():
            with contextlib.suppress(*_GONE):
                times = each.cpu_times()
                found += times.user + times.system
        return found

    def pause(self) -> None:
        """Suspend all processes of the program (with SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume the suspended processes (with SIGCONT)."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM to the program's first process only, which may need its data loader processes to save."""
        if self.code() is None:
            self._child.terminate()

    def end(self) -> None:
        """Kill all processes of the program, orphaned ones included, and wait until they are gone."""
        while left := self._processes():
            for each in left:
                with contextlib.suppress(*_GONE):
                    if each.pid != self._child.pid and each.status() == psutil.STATUS_ZOMBIE:
                        with contextlib.suppress(ChildProcessError):  # the child of another of these processes
                            os.waitpid(each.pid, os.WNOHANG)
                    else:
                        each.kill()
            if self._child.poll() is None:
                self._child.wait()
            time.sleep(_LOOK_S)

    def _signal(self, number: signal.Signals) -> None:
        for each in self._processes():
            with contextlib.suppress(*_GONE):
                each.send_signal(number)

    def _processes(self) -> list[psutil.Process]:
        found = psutil.Process().children(recursive=True)
        return [each for each in found if each.pid != self._child.pid or self._child.poll() is None]
