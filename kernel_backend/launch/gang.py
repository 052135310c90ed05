"""The rank processes of one node: started together, told together, ended together."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence

from kernel_backend.launch import horovod, torch
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.rendezvous import Meeting, Seat, interface_of, process_env, seats
from kernel_backend.model.job import Job
from kernel_backend.model.numerics import numerics_env


def free_port(address: str) -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def rank_env(base: Mapping[str, str], job: Job, seat: Seat, meeting: Meeting) -> dict[str, str]:
    """All that a rank finds in its environment: both families of variables, whichever backend it takes."""
    plain = process_env(base, seat, numerics_env(job.config.reproducible, job.config.threads or 1))
    return plain | torch.env(seat, meeting) | horovod.env(seat, meeting)


def _rendezvous(job: Job, everyone: Sequence[Seat]) -> horovod.Rendezvous | None:
    """Horovod's rendezvous, where the ranks may want it; raises ImportError only where Horovod was asked for."""
    if len(everyone) == 1 or job.config.backend == "torch" or not horovod.installed():
        return None
    try:
        return horovod.Rendezvous(job.placement[0].address, everyone)
    except ImportError:
        if job.config.backend == "horovod":
            raise
        return None


class Gang:
    """The ranks that this launcher started. Each has a pipe as stdin: lines are instructions, its end means death."""

    def __init__(self, job: Job, folder: AttemptFolder) -> None:
        address = job.placement[0].address
        everyone = seats(job.placement)
        self._rendezvous = _rendezvous(job, everyone)
        meeting = Meeting(
            address=address,
            interface=interface_of(address),
            torch_port=free_port(address),
            horovod_port=self._rendezvous.port if self._rendezvous else None,
        )
        self._ranks = [self._start(job, folder, seat, meeting) for seat in everyone]
        self.ended_by_us: frozenset[int] = frozenset()

    def _start(self, job: Job, folder: AttemptFolder, seat: Seat, meeting: Meeting) -> subprocess.Popen[bytes]:
        with folder.rank_log(seat.rank).open("ab") as log:
            return subprocess.Popen(
                [job.python, "-P", "-m", "kernel_backend.runner", str(folder.path)],
                cwd=job.cwd,
                env=rank_env(os.environ, job, seat, meeting),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def codes(self) -> Sequence[int | None]:
        """Each rank's exit code, None while it runs."""
        return [rank.poll() for rank in self._ranks]

    def tell(self, instruction: str) -> None:
        """Hand an instruction (`release` or `stop`) to every rank that still listens."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                assert rank.stdin is not None
                rank.stdin.write(instruction.encode() + b"\n")
                rank.stdin.flush()

    def end(self) -> None:
        """Kill whatever still runs and wait for it."""
        alive = [number for number, rank in enumerate(self._ranks) if rank.poll() is None]
        self.ended_by_us |= frozenset(alive)
        for number in alive:
            self._ranks[number].kill()
        for rank in self._ranks:
            rank.wait()

    def close(self) -> None:
        """Give back the rendezvous server's port."""
        if self._rendezvous:
            self._rendezvous.close()
