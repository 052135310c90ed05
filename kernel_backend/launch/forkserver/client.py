"""Ranks forked from this environment's forkserver: its import of torch serves them all, and the next attempt's too."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_backend.launch.forkserver import cache_key, protocol
from kernel_backend.launch.forkserver.endpoint import ForkserverEndpoint
from kernel_backend.launch.rank_spec import RankRequest

START_S = 60.0  # until the ranks exist: a cold rank, too, imports for a minute on a machine that is busy enough
ANSWER_S = 10.0  # until a forkserver has said how a rank ended that is seen to be gone
IDLE_S = 600.0


class NoForkserver(Exception):
    """There are no ranks, and none will come of this: start them cold."""


def supported(env: Mapping[str, str]) -> bool:
    """Whether ranks may be forked here: where processes have handles (Linux), unless DAYLIGHT_WARM=0 forbids it."""
    return hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal") and env.get("DAYLIGHT_WARM") != "0"


class Forkserver:
    """How to reach the forkserver for ranks with such an environment, and how to start it.

    `env` holds nothing of one attempt: neither its ranks' variables nor the mark by which its processes are killed.
    """

    def __init__(self, python: str, home: Path, cwd: str, env: Mapping[str, str], idle_s: float = IDLE_S) -> None:
        self.door = ForkserverEndpoint.at(home, cache_key.key(env))
        self._command = [python, "-P", "-m", "kernel_backend.launch.forkserver", str(home), self.door.key, str(idle_s)]
        self._cwd, self._env = cwd, env
        self._started: subprocess.Popen[bytes] | None = None

    def connect(self) -> socket.socket | None:
        """A line to it; None while it is being started. Raises OSError where it does not start."""
        if found := self.door.connect():
            return found
        code = self._started.poll() if self._started else 0
        if code:
            raise ChildProcessError(f"it ended with code {code}: {self.last_words()}")
        if code == 0:  # not started yet; or it found another at the door, which is about to listen or to leave
            self._start()
        return None

    def last_words(self) -> str:
        """What it said last; one that has ended as it should has left nothing."""
        lines = self.door.log.read_text(errors="replace").splitlines() if self.door.log.exists() else []
        return lines[-1] if lines else "it said nothing"

    def _start(self) -> None:
        with open(os.open(self.door.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._started = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


class WarmRanks:
    """Children of the forkserver. Nothing here waits but `end`: `codes` takes in whatever has happened."""

    def __init__(self, forkserver: Forkserver, request: RankRequest) -> None:
        self.lost: str | None = None
        self._forkserver, self._request = forkserver, request
        self._deadline = time.monotonic() + START_S
        self._line: socket.socket | None = None
        self._over = False  # nothing more will be heard
        self._pids: tuple[int, ...] = ()
        self._handles: dict[int, int] = {}  # of the ranks that live, as far as was heard
        self._codes: list[int | None] = [None] * len(request.orders)
        self._unanswered: dict[int, float] = {}  # when a rank was first seen to be gone
        self.codes()

    def codes(self) -> Sequence[int | None]:
        """Each rank's exit code, None until it has ended. Raises NoForkserver where there will be no ranks."""
        if None in self._codes:
            self._listen()
            self._miss()
        if None not in self._codes:
            self._hang_up()
        return tuple(self._codes)

    def pids(self) -> Sequence[int]:
        """The processes in order of rank; empty until all of them exist."""
        return self._pids

    def signal(self, number: int) -> None:
        """Send a signal to every rank that lives."""
        for handle in self._handles.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)

    def end(self) -> Sequence[int]:
        """Kill what lives and wait until it is gone; the ranks that this concerned."""
        alive = [rank for rank, code in enumerate(self._codes) if code is None]
        if self._line is None:
            self._over = True
        elif not self._over:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)  # what the forkserver has not forked by now, it never will
        self._deadline = time.monotonic() + ANSWER_S
        try:
            while None in self.codes():
                self.signal(signal.SIGKILL)
                time.sleep(0.01)
        except NoForkserver:
            self._codes = [-signal.SIGKILL] * len(self._codes)
        return alive

    def _listen(self) -> None:
        try:
            self._hear()
        except (OSError, ValueError, LookupError, TypeError) as error:
            self._hang_up()
            if not self._pids:
                raise NoForkserver(f"the forkserver cannot be asked: {error!r}") from None
        if self._pids:
            return
        if self._over:
            raise NoForkserver(f"the forkserver ended before it gave any ranks: {self._forkserver.last_words()}")
        if time.monotonic() > self._deadline:
            self._hang_up()
            raise NoForkserver(f"the forkserver gave no ranks within {START_S:g} s")

    def _hear(self) -> None:
        if self._line is None and not self._over:
            self._line = self._forkserver.connect()
            if self._line is not None:
                protocol.send_request(self._line, self._request)
        with contextlib.suppress(BlockingIOError):
            while self._line is not None and not self._over:
                self._take(protocol.receive_messages(self._line))

    def _take(self, said: protocol.Forked | protocol.Ended | None) -> None:
        if said is None:
            self._hang_up()
        elif isinstance(said, protocol.Forked):
            self._pids, self._handles = said.pids, dict(enumerate(said.handles))
        else:
            self._note(said.rank, said.code)

    def _miss(self) -> None:
        """Note the ranks that are gone and that the forkserver, dead or stuck, does not account for."""
        for rank, handle in [*self._handles.items()]:
            if not _ended(handle):
                continue
            since = self._unanswered.setdefault(rank, time.monotonic())
            if self._over:
                self.lost = f"the forkserver ended, and rank {rank} with it"
            elif time.monotonic() - since > ANSWER_S:
                self.lost = f"rank {rank} ended, and the forkserver, which does not answer, cannot say how"
            else:
                continue
            self._note(rank, -signal.SIGKILL)

    def _note(self, rank: int, code: int) -> None:
        if rank in self._handles:
            self._codes[rank] = code
            os.close(self._handles.pop(rank))

    def _hang_up(self) -> None:
        self._over = True
        if self._line is not None:
            self._line.close()


def _ended(handle: int) -> bool:
    """Whether the process that a handle names has ended."""
    look = select.poll()
    look.register(handle, select.POLLIN)
    return bool(look.poll(0))
