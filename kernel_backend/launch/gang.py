"""Start the rank processes of one node, send them instructions, and end them.

The ranks of all nodes of an attempt form its gang.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.launch import horovod, tensorflow, torch
from kernel_backend.launch.cold import ColdRanks
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.forkserver.client import Forkserver, NoForkserver, WarmRanks, supported
from kernel_backend.launch.forkserver.frameworks import framework_variables, frameworks
from kernel_backend.launch.node import rank_variables
from kernel_backend.launch.ports import Ports
from kernel_backend.launch.rank_spec import RankProcesses, RankRequest, RankSpec
from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo, interface_of, process_env, rank_assignments
from kernel_backend.model.launch.allocator import allocator_env
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.nodes import GangNode
from kernel_backend.model.launch.numerics import numerics_env

_MARK = "DAYLIGHT_ATTEMPT"  # marks an attempt's processes for its engine; the forkserver must not have it
_log = logging.getLogger(__name__)


def rank_env(
    base: Mapping[str, str], job: LaunchSpec, assignment: RankAssignment, rendezvous: RendezvousInfo
) -> dict[str, str]:
    """Return a rank's environment: `base`, and variables by which the rank finds its peers.

    There are variables for torch.distributed, Horovod and TensorFlow, of which the rank uses those of its library.
    """
    plain = process_env(base, assignment, _common_env(base, job))
    plain |= torch.env(assignment, rendezvous) | horovod.env(assignment, rendezvous)
    return plain | tensorflow.env(assignment, rendezvous)


def forkserver_env(base: Mapping[str, str], job: LaunchSpec) -> dict[str, str]:
    """Return the environment of the forkserver: variables that are the same for the ranks of all attempts it serves."""
    common = {**base, "PYTHONUNBUFFERED": "1", "DAYLIGHT_HOME": job.home, **_common_env(base, job)}
    return {name: value for name, value in common.items() if name != _MARK}


def _common_env(base: Mapping[str, str], job: LaunchSpec) -> dict[str, str]:
    return {**allocator_env(base), **numerics_env(job.config.reproducible, job.config.threads or 1)}


def _uses_horovod(job: LaunchSpec) -> bool:
    """Return whether a gang's ranks may use Horovod.

    They may if there are several ranks, Horovod is installed, and the user has not chosen the backend `torch`.
    """
    size = sum(len(share.slots) for share in job.placement)
    return size > 1 and job.config.backend != "torch" and horovod.installed()


def _ports_of_ranks(job: LaunchSpec, here: int) -> int:
    """Return how many ports to reserve for the `here` ranks on this node.

    That is one per rank if the attempt runs a command on several ranks, as TensorFlow needs it, and else 0.
    """
    size = sum(len(share.slots) for share in job.placement)
    return here if job.config.form == "command" and size > 1 else 0


class Peers(NamedTuple):
    """Nodes of a gang, with the addresses and ports by which the ranks of this node reach the other ranks."""

    nodes: tuple[GangNode, ...]
    node: int  # number of this node
    interface: str | None  # network device of this node; None if gloo chooses


def reserve(job: LaunchSpec, address: str, node: int, ranks: int) -> Ports:
    """Reserve the ports that node number `node`, with this number of ranks, needs at `address`; return them."""
    return Ports(address, node == 0, _uses_horovod(job), _ports_of_ranks(job, ranks))


def alone(job: LaunchSpec, ports: Ports) -> Peers:
    """Return the nodes of a gang that runs on this machine only (one node), with its reserved ports."""
    share = job.placement[0]
    here = GangNode(
        name=share.node,
        address=share.address,
        kind=share.kind,
        slots=len(share.slots),
        torch_port=ports.torch,
        horovod_port=ports.horovod,
        rank_ports=ports.ranks,
    )
    return Peers((here,), 0, interface_of(share.address))


def _info(peers: Peers, horovod_port: int | None) -> RendezvousInfo:
    first = peers.nodes[0]
    return RendezvousInfo(
        address=first.address,
        interface=peers.interface,
        torch_port=first.torch_port,
        horovod_port=horovod_port,
        workers=tuple(f"{node.address}:{port}" for node in peers.nodes for port in node.rank_ports),
    )


@contextlib.contextmanager
def own_forkserver(job: LaunchSpec) -> Iterator[Forkserver | None]:
    """Start a forkserver for this launcher alone, and end it after the block.

    It imports torch while the launcher waits for other nodes. Yields None if ranks cannot be forked. A forkserver that
    several launchers share cannot be used where launchers run in job steps: it would keep a step from ending, or would
    be killed with the step while ranks of another step need it.
    """
    if not supported(os.environ):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="daylight-", ignore_cleanup_errors=True) as home:
        forkserver = _forkserver(job, Path(home), only=True)
        try:
            forkserver.start()
            yield forkserver
        finally:
            forkserver.end()


def _forkserver(job: LaunchSpec, home: Path, only: bool = False) -> Forkserver:
    needs = frameworks(Path(job.code), Path(job.cwd), gpus=any(each.kind != "cpu" for each in job.placement))
    env = {**forkserver_env(rank_variables(os.environ), job), **framework_variables(needs)}
    return Forkserver(job.python, home, job.cwd, env, frameworks=needs, only=only)


class Gang:
    """Ranks of this launcher's node; each reads instructions from its stdin, one per line, and exits if that is closed.

    Ranks are forked from the forkserver of this environment if possible, and else started as new interpreters.
    """

    def __init__(
        self,
        job: LaunchSpec,
        folder: AttemptFolder,
        peers: Peers | None = None,
        forkserver: Forkserver | None = None,
    ) -> None:
        """Start the ranks; without `peers` this machine is the gang's only node.

        Without `forkserver`, the forkserver that all launchers in this environment share is used, and started if
        needed.
        """
        self._job, self._folder = job, folder
        first = job.placement[0]
        self._ports: Ports | None = None
        if peers is None:
            self._ports = reserve(job, first.address, 0, len(first.slots))
            peers = alone(job, self._ports)
        everyone = rank_assignments(job.placement)
        mine = [each for each in everyone if each.node_number == peers.node]
        self.ranks = tuple(each.rank for each in mine)
        self.size = len(everyone)
        self._rendezvous = self._serve_horovod(peers, everyone)
        port = peers.nodes[0].horovod_port
        rendezvous = _info(peers, port if port and (self._rendezvous or peers.node) else None)
        base = rank_variables(os.environ)
        pipes = [os.pipe() for _ in mine]
        self._lines = [os.fdopen(writing, "wb", buffering=0) for _, writing in pipes]
        orders = [
            RankSpec(rank_env(base, job, assignment, rendezvous), reading, _open_log(folder.rank_log(assignment.rank)))
            for assignment, (reading, _) in zip(mine, pipes, strict=True)
        ]
        self._request = RankRequest(str(folder.path), job.cwd, tuple(orders))
        self._known = False  # whether all ranks exist and their pids are recorded
        self._processes = self._warm(forkserver) if supported(os.environ) else self._cold()
        self.ended_by_us: frozenset[int] = frozenset()

    @property
    def lost(self) -> str | None:
        """Return why the exit codes of the ranks cannot be known, such as a dead forkserver; None if they can."""
        return self._processes.lost

    def codes(self) -> dict[int, int | None]:
        """Return the exit code of each rank, by rank number; None for a rank that is running or has not started yet."""
        try:
            codes = self._processes.codes()
        except NoForkserver as reason:
            _log.warning("the ranks start cold: %s", reason)
            self._processes = self._cold()
            codes = self._processes.codes()
        self._note()
        return dict(zip(self.ranks, codes, strict=True))

    def pids(self) -> dict[int, int]:
        """Return the process ID of each rank, by rank number; {} until all ranks exist."""
        pids = self._processes.pids()
        return dict(zip(self.ranks, pids, strict=True)) if pids else {}

    def signal(self, number: int) -> None:
        """Send the signal `number` to each rank that is running."""
        self._processes.signal(number)

    def tell(self, instruction: str) -> None:
        """Send an instruction to each running rank.

        It is `release` (save a checkpoint and exit), `stop` (exit), or `until N` (train up to step N).
        """
        for line in self._lines:
            with contextlib.suppress(OSError, ValueError):  # the rank has exited, or the pipes are closed
                line.write(instruction.encode() + b"\n")

    def end(self) -> None:
        """Kill the ranks that are still running, and wait until they have exited."""
        self.ended_by_us |= frozenset(self.ranks[nth] for nth in self._processes.end())

    def close(self) -> None:
        """Close Horovod's server, the reserved ports, and the pipes to the ranks, which have ended."""
        if self._ports is not None:
            self._ports.close()
        if self._rendezvous:
            self._rendezvous.close()
        if not self._known:
            self._request.close()
        for line in self._lines:
            line.close()

    def _warm(self, forkserver: Forkserver | None) -> RankProcesses:
        try:
            return WarmRanks(forkserver or _forkserver(self._job, Path(self._job.home)), self._request)
        except (NoForkserver, OSError) as reason:
            _log.warning("the ranks start cold: %s", reason)
            return self._cold()

    def _cold(self) -> RankProcesses:
        return ColdRanks(self._job.python, self._request)

    def _note(self) -> None:
        """When all ranks exist, write their process IDs to the folder.

        The ranks then have their own copies of their pipes and logs, and those of this process are closed.
        """
        if self._known or not self.pids():
            return
        self._known = True
        self._request.close()
        with contextlib.suppress(OSError):  # the file is only for inspection: a failure must not end the gang
            self._folder.write_pids(self.pids())

    def _serve_horovod(self, peers: Peers, everyone: Sequence[RankAssignment]) -> horovod.Rendezvous | None:
        """Start Horovod's rendezvous server if this is the first node and the ranks may use Horovod, else return None.

        If Horovod cannot be imported, an ImportError is raised only if Horovod was requested.
        """
        first = peers.nodes[0]
        if peers.node or not first.horovod_port:
            return None
        try:
            return horovod.Rendezvous(first.address, everyone, first.horovod_port)
        except ImportError:
            if self._job.config.backend == "horovod":
                raise
            return None


def _open_log(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
