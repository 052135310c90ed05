"""Request ranks from a forkserver, a process that has imported torch once for all attempts in an environment."""

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

START_S = 60.0  # time for the ranks to exist; on a busy machine the imports of a cold start take a minute, too
ANSWER_S = 10.0  # time for a forkserver to report the exit of a rank
IDLE_S = 600.0


class NoForkserver(Exception):
    """Error: the forkserver cannot start ranks; they must be started as new interpreters instead."""


def supported(env: Mapping[str, str]) -> bool:
    """Return True if ranks may be forked: the system has process handles (Linux), and DAYLIGHT_WARM is not 0."""
    return hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal") and env.get("DAYLIGHT_WARM") != "0"


class Forkserver:
    """Client of the forkserver for ranks with the environment `env`; starts the forkserver if there is none.

    `env` must have no variables that belong to a single attempt or rank. `frameworks` are modules that the forkserver
    imports besides torch. With `only`, the forkserver serves this launcher alone, and exits when the launcher does.
    """

    def __init__(
        self,
        python: str,
        home: Path,
        cwd: str,
        env: Mapping[str, str],
        idle_s: float = IDLE_S,
        frameworks: Sequence[str] = (),
        only: bool = False,
    ) -> None:
        self.endpoint = ForkserverEndpoint.at(home, cache_key.key(env, frameworks))
        arguments = [str(home), self.endpoint.key, str(idle_s), str(os.getpid() if only else 0), *frameworks]
        self._command = [python, "-P", "-m", "kernel_backend.launch.forkserver", *arguments]
        self._cwd, self._env = cwd, env
        self._started: subprocess.Popen[bytes] | None = None

    def connect(self) -> socket.socket | None:
        """Return a connection to the forkserver, which is started if there is none; None as long as it is starting.

        Raises OSError if it cannot be started, or has ended with an error.
        """
        if found := self.endpoint.connect():
            return found
        code = self._started.poll() if self._started else 0
        if code:
            raise ChildProcessError(f"it ended with code {code}: {self.last_words()}")
        if code == 0:  # no forkserver was started yet, or it found another one, which is about to listen or to exit
            self.start()
        return None

    def last_words(self) -> str:
        """Return the last line of the forkserver's log, which usually is an error; `it said nothing` without one."""
        lines = self.endpoint.log.read_text(errors="replace").splitlines() if self.endpoint.log.exists() else []
        return lines[-1] if lines else "it said nothing"

    def start(self) -> None:
        """Start the forkserver process; raise OSError if that fails.

        `connect` returns a connection as soon as the forkserver listens.
        """
        with open(os.open(self.endpoint.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._started = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """Kill the forkserver if this client started it; the ranks that it has forked die with it."""
        if self._started is not None:
            self._started.kill()
            self._started.wait()


class WarmRanks:
    """Rank processes that the forkserver has forked, whose exit codes come in messages from the forkserver.

    `codes` reads the messages that have arrived; only `end` waits for any.
    """

    def __init__(self, forkserver: Forkserver, request: RankRequest) -> None:
        self.lost: str | None = None
        self._forkserver, self._request = forkserver, request
        self._deadline = time.monotonic() + START_S
        self._connection: socket.socket | None = None
        self._over = False  # no more messages will come
        self._pids: tuple[int, ...] = ()
        self._handles: dict[int, int] = {}  # pidfd of each running rank that the forkserver has reported
        self._codes: list[int | None] = [None] * len(request.orders)
        self._unanswered: dict[int, float] = {}  # when an exit was noticed that the forkserver has not reported
        self.codes()

    def codes(self) -> Sequence[int | None]:
        """Return the exit code of each rank, in order of rank; None for a rank that is running or being started.

        Raises NoForkserver if the forkserver cannot start the ranks.
        """
        if None in self._codes:
            self._listen()
            self._miss()
        if None not in self._codes:
            self._hang_up()
        return tuple(self._codes)

    def pids(self) -> Sequence[int]:
        """Return the process IDs of the ranks, in order of rank; empty until all exist."""
        return self._pids

    def signal(self, number: int) -> None:
        """Send the signal `number` to each rank that is running."""
        for handle in self._handles.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)

    def end(self) -> Sequence[int]:
        """Kill the ranks that still run, and wait until they have exited; return the numbers of the ranks killed."""
        alive = [rank for rank, code in enumerate(self._codes) if code is None]
        if self._connection is None:
            self._over = True
        elif not self._over:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)  # the forkserver forks no more ranks for this launcher
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
            self._receive()
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

    def _receive(self) -> None:
        if self._connection is None and not self._over:
            self._connection = self._forkserver.connect()
            if self._connection is not None:
                protocol.send_request(self._connection, self._request)
        with contextlib.suppress(BlockingIOError):
            while self._connection is not None and not self._over:
                self._take(protocol.receive_messages(self._connection))

    def _take(self, message: protocol.Forked | protocol.Ended | None) -> None:
        if message is None:
            self._hang_up()
        elif isinstance(message, protocol.Forked):
            self._pids, self._handles = message.pids, dict(enumerate(message.handles))
        else:
            self._note(message.rank, message.code)

    def _miss(self) -> None:
        """Record the end of ranks whose process has exited, but whose exit a dead or stuck forkserver has not reported.

        `lost` then says why. As their exit codes are unknown, the attempt counts as lost.
        """
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
        if self._connection is not None:
            self._connection.close()


def _ended(handle: int) -> bool:
    """Return True if the process with this handle (pidfd) has exited."""
    look = select.poll()
    look.register(handle, select.POLLIN)
    return bool(look.poll(0))
