"""Run the forkserver's event loop: fork ranks for launchers, report their exits, kill the ranks of a lost launcher."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from kernel_backend.launch.forkserver import protocol
from kernel_backend.launch.forkserver.endpoint import accept
from kernel_backend.launch.rank_spec import RankRequest

TICK_S = 5.0  # between checks whether the forkserver is still needed


class ForkedRank(NamedTuple):
    """Rank that a newly forked process has to run: its number, and the request that it belongs to."""

    rank: int
    request: RankRequest


class _Child(NamedTuple):
    pid: int
    rank: int
    launcher: socket.socket


class ForkserverLoop:
    """Event loop of the forkserver, in a single thread and without signals.

    It waits for messages on the launchers' sockets, and for the exit of forked processes by their handles (pidfd).
    """

    def __init__(self, listener: socket.socket, idle_s: float) -> None:
        self._listener, self._idle_s = listener, idle_s
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._launchers: set[socket.socket] = set()
        self._gone: set[socket.socket] = set()  # disconnected launchers whose ranks are being killed
        self._children: dict[int, _Child] = {}  # by handle
        self._used = time.monotonic()

    def serve(self, wanted: Callable[[], bool]) -> ForkedRank | None:
        """Serve launchers until the forkserver is not needed any more; then return None.

        That is so when no rank has run for the idle time, or when no rank runs and `wanted` returns False. In a forked
        process, return at once the rank that this process has to run.
        """
        while self._children or (time.monotonic() - self._used < self._idle_s and wanted()):
            for ready, _ in self._selector.select(min(TICK_S, self._idle_s)):
                mine: ForkedRank | None = ready.data(ready.fileobj)
                if mine is not None:
                    return mine
        return None

    def _accept(self, listener: socket.socket) -> None:
        launcher = accept(listener)
        if launcher is not None:
            self._launchers.add(launcher)
            self._selector.register(launcher, selectors.EVENT_READ, self._receive)

    def _receive(self, launcher: socket.socket) -> ForkedRank | None:
        try:
            request = protocol.receive_request(launcher)
        except ValueError as error:
            _say(error)
            request = None
        if request is None:
            self._part(launcher)
            return None
        # A launcher that was killed while torch was being imported needs no ranks.
        mine = None if protocol.hung_up(launcher) else self._fork(launcher, request)
        if mine is None:
            request.close()
        return mine

    def _fork(self, launcher: socket.socket, request: RankRequest) -> ForkedRank | None:
        """Fork a process for each rank of a request, and report them to the launcher; return None.

        In a forked process, close all files of the forkserver, and return the rank that the process has to run.
        """
        forked: dict[int, int] = {}
        for rank in range(len(request.orders)):
            try:
                pid, handle = _fork()
            except OSError as error:
                _say(f"cannot fork: {error}")
                self._part(launcher)
                return None
            if pid == 0:
                self._forget()
                return ForkedRank(rank, request)
            self._children[handle] = _Child(pid, rank, launcher)
            self._selector.register(handle, selectors.EVENT_READ, self._reap)
            forked[pid] = handle
        protocol.send_message(launcher, protocol.Forked(tuple(forked), tuple(forked.values())))
        return None

    def _forget(self) -> None:
        self._selector.close()
        for connection in (self._listener, *self._launchers, *self._gone):
            connection.close()
        for handle in self._children:
            os.close(handle)

    def _reap(self, handle: int) -> None:
        child = self._children.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(child.pid, 0)
        self._used = time.monotonic()
        protocol.send_message(child.launcher, protocol.Ended(child.rank, os.waitstatus_to_exitcode(status)))
        self._close_if_done(child.launcher)

    def _part(self, launcher: socket.socket) -> None:
        """Kill the ranks of a launcher that has closed its connection; close this end once they have exited."""
        self._selector.unregister(launcher)
        self._launchers.remove(launcher)
        self._gone.add(launcher)
        for handle, child in self._children.items():
            if child.launcher is launcher:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        self._close_if_done(launcher)

    def _close_if_done(self, launcher: socket.socket) -> None:
        if launcher in self._gone and all(child.launcher is not launcher for child in self._children.values()):
            self._gone.remove(launcher)
            launcher.close()


def _fork() -> tuple[int, int]:
    """Fork this process; return the child's pid and its handle (pidfd), and in the child (0, 0).

    Raises OSError if that fails.
    """
    pid = os.fork()
    if pid == 0:
        return 0, 0
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _say(text: object) -> None:
    print(text, file=sys.stderr, flush=True)
