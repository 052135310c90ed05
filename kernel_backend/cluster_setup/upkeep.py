"""Start the daemons of a machine that was set up, report the state of its cluster, and undo the setup."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.cluster_setup import head
from kernel_backend.cluster_setup.advice import advise
from kernel_backend.cluster_setup.cluster import CONTROLLER_PORT, LOGS, Cluster, Member
from kernel_backend.cluster_setup.local_state import Say, connection_error, read_cluster, read_member
from kernel_backend.cluster_setup.machine import read_machine
from kernel_backend.cluster_setup.plan import head_start, leave_steps, member_start
from kernel_backend.cluster_setup.problems import SUDO, Problem
from kernel_backend.cluster_setup.status import NodeStatus, different_versions, node_todo, slurmd_start
from kernel_backend.cluster_setup.steps import Start, Step
from kernel_backend.cluster_setup.system import SetupFailed, System, output
from kernel_backend.errors import InvalidRequest

HEAD_S = 120.0  # time to wait for a head that boots at the same time
REGISTER_S = 60.0  # time to wait for this machine's slurmd to register with the head
_LOG_BYTES = 20_000


class Report(NamedTuple):
    """State of a cluster, as this machine sees it: its nodes, and problems with their remedies."""

    name: str
    head: str
    nodes: Sequence[NodeStatus]
    problems: Sequence[Problem]


def start(say: Say) -> Cluster | Member:
    """Start the daemons of this machine that do not run, such as after a reboot without systemd.

    Returns the cluster if this machine is its head, else the record of the cluster that it has joined. Waits until jobs
    can run here and the newly started slurmd has registered at the head. Before that, the head would send jobs to the
    slurmd from before the reboot, and they would hang.
    """
    mine, steps = _parts()
    machine = read_machine()
    if not machine.root:
        raise InvalidRequest(f"only root starts the daemons: {SUDO} start")
    if isinstance(mine, Member):
        _wait_for_head(mine)
    system, since = System(machine.systemd), float(int(time.time()))
    restarts = any(isinstance(step, Start) and step.daemon == "slurmd" and not system.running(step) for step in steps)
    system.carry_out(steps, say)
    _wait_until_usable(machine.name, since if restarts else 0.0)
    return mine


def status() -> Report:
    """Return the nodes of the cluster according to Slurm, and the problems that Slurm and this machine have."""
    mine, steps = _parts()
    system = System(read_machine().systemd)
    problems = [
        Problem(f"{step.daemon} does not run here", "daylight cluster start, as root")
        for step in steps
        if isinstance(step, Start) and not system.running(step)
    ]
    nodes: list[NodeStatus] = []
    try:
        nodes = head.nodes()
    except SetupFailed as error:
        logs = (advise(_tail(Path(LOGS, name))) for name in ("slurmctld.log", "slurmd.log"))
        advice = next(
            (found for found in logs if found), (error.message, f"write daylight cluster start on {mine.head}")
        )
        problems.append(Problem(*advice))
    problems += [
        Problem(f"{node.name} is {node.state} {node.reason}".strip(), todo)
        for node in nodes
        if (todo := node_todo(node, mine.head))
    ]
    if versions := different_versions(nodes):
        problems.append(Problem(f"nodes have different versions of Slurm: {versions}", "install the same on all"))
    return Report(mine.name, mine.head, nodes, problems)


def leave(say: Say, dry_run: bool) -> str:
    """Undo the setup of this machine, or only print the steps (`dry_run`); return what the user must still do.

    "" if there is nothing left to do.
    """
    mine, _ = _parts()
    machine = read_machine()
    steps = leave_steps(isinstance(mine, Cluster))
    if dry_run:
        for step in steps:
            say(str(step))
        return ""
    if not machine.root:
        raise InvalidRequest(f"only root undoes a setup: {SUDO} leave")
    if isinstance(mine, Member):
        try:
            output(("scontrol", "update", f"nodename={machine.name}", "state=down", "reason=left"))
        except SetupFailed as error:
            say(f"note: the head could not be informed: {error.message}")
    System(machine.systemd).carry_out(steps, say)
    if isinstance(mine, Member):
        return f"on {mine.head} write: daylight cluster remove {machine.name}"
    others = [node.name for node in mine.nodes if node.name != mine.head]
    return f"write daylight cluster leave on {', '.join(others)} too" if others else ""


def _wait_for_head(member: Member) -> None:
    deadline = time.monotonic() + HEAD_S
    while reason := connection_error(member.address, CONTROLLER_PORT):
        if time.monotonic() > deadline:
            raise SetupFailed(
                f"{member.head} ({member.address}:{CONTROLLER_PORT}) does not answer ({reason}): write daylight "
                "cluster start there first, or look at its network"
            )
        time.sleep(0.5)


def _wait_until_usable(name: str, since: float) -> None:
    """Wait until the head lists this machine as able to run jobs, with a slurmd that started at `since` or later.

    `since` is in seconds since 1970, 0.0 for any slurmd. Raises SetupFailed after REGISTER_S seconds.
    """
    deadline = time.monotonic() + REGISTER_S
    while True:
        try:
            found = next((node for node in head.nodes() if node.name == name), None)
            registered = slurmd_start(output(("scontrol", "show", "node", name))) >= since
            said = f"{found.state} {found.reason}".strip() if found else "not listed"
        except SetupFailed as error:
            found, registered, said = None, False, error.message
        if found and found.works and registered:
            return
        if time.monotonic() > deadline:
            said = said if registered else f"{said}, and its slurmd has not registered"
            raise SetupFailed(f"{name} is {said}: see {LOGS}/slurmd.log, and daylight cluster status")
        time.sleep(0.2)


def _parts() -> tuple[Cluster | Member, list[Step]]:
    if (cluster := read_cluster()) is not None:
        return cluster, head_start()
    if (joined := read_member()) is not None:
        return joined, member_start(joined)
    raise InvalidRequest("this machine is in no cluster: daylight cluster init, or daylight cluster join HEAD")


def _tail(path: Path) -> str:
    return path.read_bytes()[-_LOG_BYTES:].decode(errors="replace") if path.exists() else ""
