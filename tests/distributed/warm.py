"""Ranks that start at once: forked from a process that has torch and Horovod imported already.

A cold rank takes seconds of processor time to import torch, and a test session starts dozens. What a rank sees is the
same: its environment, its folder, a pipe as stdin, its log. Some tests use the launcher's own cold ranks as well.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from kernel_backend.launch import horovod
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.gang import free_port, rank_env
from kernel_backend.launch.rendezvous import Meeting, seats
from kernel_backend.model.job import Job

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch._dynamo", "horovod.torch", "kernel_backend.runner.worker"])


class WarmGang:
    """The ranks of an attempt, as `launch.gang.Gang` has them."""

    def __init__(self, job: Job, folder: AttemptFolder) -> None:
        everyone = seats(job.placement)
        self._rendezvous = horovod.Rendezvous("127.0.0.1", everyone)
        meeting = Meeting("127.0.0.1", "lo", free_port("127.0.0.1"), self._rendezvous.port)
        self._pipes: list[Connection] = []
        self._ranks = []
        for seat in everyone:
            theirs, ours = _context.Pipe(duplex=False)
            log = str(folder.rank_log(seat.rank))
            environment = rank_env(os.environ, job, seat, meeting)
            rank = _context.Process(target=_be_a_rank, args=(theirs, environment, job.cwd, log, str(folder.path)))
            rank.start()
            theirs.close()
            self._pipes.append(ours)
            self._ranks.append(rank)

    def codes(self) -> Sequence[int | None]:
        """Each rank's exit code, None while it runs."""
        return [rank.exitcode for rank in self._ranks]

    def pids(self) -> list[int]:
        """The ranks' processes."""
        return [rank.pid or 0 for rank in self._ranks]

    def tell(self, instruction: str) -> None:
        """Write a line to every rank's stdin."""
        for pipe in self._pipes:
            os.write(pipe.fileno(), instruction.encode() + b"\n")

    def hang_up(self) -> None:
        """Close every rank's stdin, as the death of a launcher does."""
        for pipe in self._pipes:
            pipe.close()

    def close(self) -> None:
        """End what still runs."""
        for rank in self._ranks:
            rank.kill()
            rank.join()
        self._rendezvous.close()


def _be_a_rank(stdin: Connection, environment: Mapping[str, str], cwd: str, log: str, folder: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for source, target in ((stdin.fileno(), 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["runner", folder]
    runpy.run_module("kernel_backend.runner", run_name="__main__")
