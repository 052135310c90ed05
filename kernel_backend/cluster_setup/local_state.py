"""Read whether this machine is the head or a node of a cluster, and check whether it can be set up as one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil
from pydantic import ValidationError

from kernel_backend.cluster_setup.cluster import CONTROLLER_PORT, NODE_PORT, Cluster, Member
from kernel_backend.cluster_setup.machine import Machine, read_machine
from kernel_backend.cluster_setup.plan import CLUSTER, MEMBER, SLURM_CONF
from kernel_backend.cluster_setup.problems import Problem, before_setup, install_command, missing, taken_ports
from kernel_backend.cluster_setup.system import SetupFailed, run_shown
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record

_Record = TypeVar("_Record", bound=Record)
Say = Callable[[str], None]
_DAEMONS = {CONTROLLER_PORT: "slurmctld", NODE_PORT: "slurmd"}


class Choices(NamedTuple):
    """Options of `daylight cluster init` and `daylight cluster join`, as the user gave them."""

    address: str | None = None
    name: str | None = None
    cgroups: bool = False
    install: bool = False
    force: bool = False
    dry_run: bool = False


def read_cluster() -> Cluster | None:
    """Return the cluster whose head this machine is; None if it is no head."""
    return _read(Cluster, CLUSTER)


def read_member() -> Member | None:
    """Return the record of the cluster that this machine has joined; None if it has joined none."""
    return _read(Member, MEMBER)


def checked_machine(head: bool, choices: Choices, say: Say) -> Machine:
    """Return the properties of this machine; raise InvalidRequest, with all problems, if it cannot be set up.

    `head` is True if it is to be the head, False for another node. With the choice `install`, missing packages are
    installed first.
    """
    machine = read_machine()
    if choices.install and machine.root and missing(machine, head) and (command := install_command(machine, head)):
        say(command)
        if not choices.dry_run:
            run_shown(tuple(command.split()))
            machine = read_machine()
    conf = Path(SLURM_CONF)
    found = before_setup(machine, head, conf.read_bytes() if conf.exists() else None, choices.force)
    ports = (CONTROLLER_PORT, NODE_PORT) if head else (NODE_PORT,)
    refuse([*found, *taken_ports({port: holder for port in ports if (holder := _holder(port))})])
    return machine


def refuse(problems: Sequence[Problem]) -> None:
    """Raise an InvalidRequest that lists all of these problems; do nothing if there are none."""
    if problems:
        raise InvalidRequest("\n  ".join(map(str, problems)))


def connection_error(host: str, port: int) -> str:
    """Return why a port of a machine does not accept connections; "" if it does."""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _holder(port: int) -> str:
    """Return the name of the program that occupies a TCP port which Slurm needs.

    "" if the port is free, or the Slurm daemon to which it belongs has it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
            return ""
        except OSError:
            pass  # the port is taken: the holder is looked up below
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
            name = psutil.Process(each.pid).name()
            return "" if name.startswith(_DAEMONS[port]) else f"{name} (process {each.pid})"
    return "another program"


def _read(kind: type[_Record], path: str) -> _Record | None:
    try:
        return kind.model_validate_json(Path(path).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise SetupFailed(f"{path} cannot be read: remove it, and set this machine up again ({error})") from error
