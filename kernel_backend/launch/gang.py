"""Start, instruct and end the rank processes of one node together."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_backend.launch import horovod, tensorflow, torch
from kernel_backend.launch.cold import ColdRanks
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.forkserver.client import Forkserver, NoForkserver, WarmRanks, supported
from kernel_backend.launch.forkserver.frameworks import framework_variables, frameworks
from kernel_backend.launch.rank_spec import RankProcesses, RankRequest, RankSpec
from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo, interface_of, process_env, rank_assignments
from kernel_backend.model.launch.allocator import allocator_env
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.numerics import numerics_env

_MARK = "DAYLIGHT_ATTEMPT"  # marks an attempt's processes for its engine; the forkserver must not have it
_log = logging.getLogger(__name__)


def reserved_port(address: str) -> socket.socket:
    """Reserve a port while the socket is open; listeners with SO_REUSEADDR, such as torch's, can still use it.

    It keeps other programs from taking the port while rank 0 imports its modules, before it listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held


def rank_env(
    base: Mapping[str, str], job: LaunchSpec, assignment: RankAssignment, rendezvous: RendezvousInfo
) -> dict[str, str]:
    """Return a rank's environment, with variables for both backends: the rank chooses one later."""
    plain = process_env(base, assignment, _common_env(base, job))
    plain |= torch.env(assignment, rendezvous) | horovod.env(assignment, rendezvous)
    return plain | tensorflow.env(assignment, rendezvous)


def forkserver_env(base: Mapping[str, str], job: LaunchSpec) -> dict[str, str]:
    """Return the environment variables that are equal for all ranks of a gang and of later attempts."""
    common = {**base, "PYTHONUNBUFFERED": "1", "DAYLIGHT_HOME": job.home, **_common_env(base, job)}
    return {name: value for name, value in common.items() if name != _MARK}


def _common_env(base: Mapping[str, str], job: LaunchSpec) -> dict[str, str]:
    return {**allocator_env(base), **numerics_env(job.config.reproducible, job.config.threads or 1)}


def _rendezvous(job: LaunchSpec, everyone: Sequence[RankAssignment]) -> horovod.Rendezvous | None:
    """Start Horovod's rendezvous server if the ranks may use it, else return None.

    An ImportError of Horovod is raised only if Horovod was requested.
    """
    if len(everyone) == 1 or job.config.backend == "torch" or not horovod.installed():
        return None
    try:
        return horovod.Rendezvous(job.placement[0].address, everyone)
    except ImportError:
        if job.config.backend == "horovod":
            raise
        return None


class Gang:
    """Ranks started by this launcher; each reads instructions as lines from its stdin and exits when that is closed.

    They are forked by the forkserver of this environment if possible, else started cold.
    """

    def __init__(self, job: LaunchSpec, folder: AttemptFolder) -> None:
        self._job, self._folder = job, folder
        everyone = rank_assignments(job.placement)
        address = job.placement[0].address
        self._rendezvous = _rendezvous(job, everyone)
        self._port = reserved_port(address)
        command = job.config.form == "command"
        self._ports = [reserved_port(address) for _ in everyone] if command and len(everyone) > 1 else []
        rendezvous = RendezvousInfo(
            address=address,
            interface=interface_of(address),
            torch_port=self._port.getsockname()[1],
            horovod_port=self._rendezvous.port if self._rendezvous else None,
            tensorflow_ports=tuple(each.getsockname()[1] for each in self._ports),
        )
        pipes = [os.pipe() for _ in everyone]
        self._lines = [os.fdopen(writing, "wb", buffering=0) for _, writing in pipes]
        orders = [
            RankSpec(
                rank_env(os.environ, job, assignment, rendezvous), reading, _open_log(folder.rank_log(assignment.rank))
            )
            for assignment, (reading, _) in zip(everyone, pipes, strict=True)
        ]
        self._request = RankRequest(str(folder.path), job.cwd, tuple(orders))
        self._known = False  # whether all ranks exist and their pids are recorded
        self._ranks = self._warm() if supported(os.environ) else self._cold()
        self.ended_by_us: frozenset[int] = frozenset()

    @property
    def lost(self) -> str | None:
        """Return why exit codes are unavailable for a reason outside of the ranks; None while they are available."""
        return self._ranks.lost

    def codes(self) -> Sequence[int | None]:
        """Return each rank's exit code, None while it runs or has not started."""
        try:
            codes = self._ranks.codes()
        except NoForkserver as reason:
            _log.warning("the ranks start cold: %s", reason)
            self._ranks = self._cold()
            codes = self._ranks.codes()
        self._note()
        return codes

    def pids(self) -> Sequence[int]:
        """Return the ranks' process ids in order of rank; empty until all exist."""
        return self._ranks.pids()

    def signal(self, number: int) -> None:
        """Send a signal to each running rank."""
        self._ranks.signal(number)

    def tell(self, instruction: str) -> None:
        """Send an instruction (`release`, `stop` or `until N`) to all ranks that still read instructions."""
        for line in self._lines:
            with contextlib.suppress(OSError, ValueError):  # the rank has exited, or the pipes are closed
                line.write(instruction.encode() + b"\n")

    def end(self) -> None:
        """Kill the ranks that still run and wait for them."""
        self.ended_by_us |= frozenset(self._ranks.end())

    def close(self) -> None:
        """Close the reserved ports and the pipes to the ranks."""
        for port in (self._port, *self._ports):
            port.close()
        if self._rendezvous:
            self._rendezvous.close()
        if not self._known:
            self._request.close()
        for line in self._lines:
            line.close()

    def _warm(self) -> RankProcesses:
        job = self._job
        try:
            needs = frameworks(Path(job.code), Path(job.cwd), gpus=any(each.kind != "cpu" for each in job.placement))
            env = {**forkserver_env(os.environ, job), **framework_variables(needs)}
            forkserver = Forkserver(job.python, Path(job.home), job.cwd, env, frameworks=needs)
            return WarmRanks(forkserver, self._request)
        except (NoForkserver, OSError) as reason:
            _log.warning("the ranks start cold: %s", reason)
            return self._cold()

    def _cold(self) -> RankProcesses:
        return ColdRanks(self._job.python, self._request)

    def _note(self) -> None:
        """Once all ranks exist, write their pids to the folder and close this process's copies of their files."""
        if self._known or not self.pids():
            return
        self._known = True
        self._request.close()
        with contextlib.suppress(OSError):  # the file is only for inspection: a failure must not end the gang
            self._folder.write("ranks.json", json.dumps(dict(enumerate(self.pids()))).encode())


def _open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
