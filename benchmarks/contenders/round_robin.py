"""Run contenders in processes of their own, which take turns and are frozen in between.

So other load on the machine affects all of them alike, and none runs beside another. A ratio is the median over rounds
of (ours / theirs in the same round).
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from kernel_backend.launch import horovod as horovod_launch
from kernel_backend.launch import torch as torch_launch
from kernel_backend.launch.ports import reserved_port
from kernel_backend.launch.rendezvous import RendezvousInfo, rank_assignments
from kernel_backend.model.resources import Share

Step = Callable[[], None]  # called when a batch is there and before it is trained on
Train = Callable[..., None]  # (step, *arguments): trains for ever
Times = Mapping[str, Sequence[float]]

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["torch._dynamo", "horovod.torch", "kernel_backend.runner.rank_process"])
_FRESH = multiprocessing.get_context("spawn")


class Contender(NamedTuple):
    """Describe a contender: its training function, the arguments and the number of ranks.

    `env` is set in each of its processes before torch is imported.
    """

    train: Train
    arguments: tuple[Any, ...] = ()
    ranks: int = 1
    env: Mapping[str, str] = {}


def contest(contenders: Mapping[str, Contender], rounds: int, steps: int, warm_up: int = 10) -> dict[str, list[float]]:
    """Return the step times of each contender in seconds, the median of each round.

    A different contender begins each round.
    """
    gangs: dict[str, Gang] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # nobody shall stay behind, frozen
    try:
        for name, contender in contenders.items():
            gangs[name] = Gang(contender)
            gangs[name].steps(warm_up)
        names = list(contenders)
        times: dict[str, list[float]] = {name: [] for name in names}
        for turn in itertools.islice(itertools.cycle(range(len(names))), rounds):
            for name in names[turn:] + names[:turn]:
                times[name].append(statistics.median(gangs[name].steps(steps)))
        return times
    finally:
        for gang in gangs.values():
            gang.close()


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over rounds of ours / theirs."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


class Gang:
    """Ranks of a contender, each the leader of a process group that also has its loader workers, frozen together."""

    def __init__(self, contender: Contender) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._rendezvous: horovod_launch.Rendezvous | None = None
        self._pipes: list[Connection] = []
        self._processes = []
        context: Any = _FRESH if contender.env else _FORKED
        kept = dict(os.environ)
        os.environ.update(contender.env)
        for environment in self._environments(contender.ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_be_a_rank, args=(contender, environment, self._folder.name, theirs))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        os.environ.clear()
        os.environ.update(kept)
        try:
            for pipe in self._pipes:
                pipe.recv()
        except EOFError:
            self.close()
            raise SystemExit("a contender has ended: its own words are above") from None

    def steps(self, count: int) -> list[float]:
        """Return the seconds of each of the next steps on rank 0."""
        self._signal(signal.SIGCONT)
        for pipe in self._pipes:
            pipe.send(count)
        answers = [pipe.recv() for pipe in self._pipes]
        self._signal(signal.SIGSTOP)
        return list(answers[0])

    def close(self) -> None:
        """End the ranks and the processes that they have started."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.join()
        self._port.close()
        if self._rendezvous:
            self._rendezvous.close()
        self._folder.cleanup()

    def _environments(self, ranks: int) -> list[dict[str, str]]:
        here = Share(node="here", kind="cpu", address="127.0.0.1", slots=tuple(range(ranks)))
        everyone = rank_assignments((here,))
        self._rendezvous = horovod_launch.Rendezvous("127.0.0.1", everyone) if ranks > 1 else None
        port = self._rendezvous.port if self._rendezvous else None
        self._port = reserved_port("127.0.0.1")
        rendezvous = RendezvousInfo("127.0.0.1", "lo", self._port.getsockname()[1], port)
        return [
            torch_launch.env(assignment, rendezvous) | horovod_launch.env(assignment, rendezvous)
            for assignment in everyone
        ]

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            assert process.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)


class RoundRobin:
    """Callback that a contender calls once a step; it returns when it is the contender's turn.

    A GPU computes asynchronously, after the calls; with a GPU, all steps of a turn get equal shares of the turn's time.
    """

    def __init__(self, commands: Connection) -> None:
        self._commands = commands
        self._times: list[float] = []
        self._left, self._last = 0, 0.0
        self._gpu = torch.cuda.is_available()

    def step(self) -> None:
        """Note that a step begins, and that the one before has ended."""
        if self._left:
            self._times.append(time.perf_counter() - self._last)
            self._left -= 1
        if not self._left:
            self._commands.send(self._evenly() if self._gpu else self._times)
            self._times, self._left = [], self._commands.recv()
        self._last = time.perf_counter()

    def _evenly(self) -> list[float]:
        began = time.perf_counter()
        torch.cuda.synchronize()
        whole = sum(self._times) + time.perf_counter() - began
        return [whole / len(self._times) for _ in self._times]


def _be_a_rank(contender: Contender, environment: Mapping[str, str], folder: str, commands: Connection) -> None:
    os.setsid()
    tempfile.tempdir = folder  # a rank is killed in the end, and removes nothing
    os.environ.update(environment)
    multiprocessing.set_start_method("fork", force=True)  # of loader workers, as in a plain script
    try:
        contender.train(RoundRobin(commands).step, *contender.arguments)
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # without a wait for its loader workers: whoever waits for it shall hear of this at once
