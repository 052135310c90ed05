"""Make this machine a node of a cluster that exists already."""

from __future__ import annotations

import base64
import time
from pathlib import Path

from kernel_backend.cluster_setup.advice import advise
from kernel_backend.cluster_setup.cluster import CONTROLLER_PORT, LOGS, NODE_PORT, Member
from kernel_backend.cluster_setup.invitation import (
    PORT,
    HeadClient,
    InvitationRefused,
    JoinRequest,
    StateAnswer,
    read_token,
)
from kernel_backend.cluster_setup.local_state import (
    Choices,
    Say,
    checked_machine,
    connection_error,
    read_cluster,
    read_member,
    refuse,
)
from kernel_backend.cluster_setup.plan import member_steps
from kernel_backend.cluster_setup.problems import Problem
from kernel_backend.cluster_setup.status import WORKING
from kernel_backend.cluster_setup.system import SetupFailed, System
from kernel_backend.errors import InvalidRequest

IDLE_S = 60.0
NODE_LOG = Path(LOGS, "slurmd.log")


def plan_join(head: str, choices: Choices, say: Say) -> None:
    """Print the steps by which this machine would join the cluster of a head, without carrying them out."""
    machine, host = checked_machine(False, choices, say), head.partition(":")[0]
    for step in member_steps(Member(name="NAME", head=host, address=host), b"", machine.systemd):
        say(str(step))


def join(head: str, token: str, choices: Choices, say: Say) -> Member:
    """Join the cluster of a head (`HOST` or `HOST:PORT`), and wait until this machine can run jobs.

    Returns the record of the cluster. Raises InvalidRequest if this machine cannot join, InvitationRefused if the head
    does not answer or the token is wrong, and SetupFailed if a step fails.
    """
    host, _, port = head.partition(":")
    client = HeadClient(host, int(port) if port.isdigit() else PORT, read_token(token))
    if (cluster := read_cluster()) is not None:
        raise InvalidRequest(f"this machine is the head of {cluster.name}: daylight cluster leave first")
    machine, before = checked_machine(False, choices, say), read_member()
    answer = client.join(JoinRequest(machine=machine, clock=time.time()))
    refuse([Problem(*each) for each in answer.problems])
    member = Member(name=answer.cluster, head=answer.head, address=answer.address)
    if before is not None and before != member:
        say(f"note: this machine leaves {before.name} of {before.head}")
    for note in answer.notes:
        say(note)
    if reason := connection_error(member.address, CONTROLLER_PORT):
        raise InvalidRequest(
            f"slurmctld of {member.head} at {member.address}:{CONTROLLER_PORT} cannot be reached ({reason}): open TCP "
            f"ports {PORT}-{NODE_PORT} between the machines, or write daylight cluster init --address ADDRESS there, "
            "with the address that this machine reaches"
        )
    begun = NODE_LOG.stat().st_size if NODE_LOG.exists() else 0
    System(machine.systemd).carry_out(member_steps(member, base64.b64decode(answer.key), machine.systemd), say)
    _wait(client, machine.name, member.head, begun)
    return member


def _wait(client: HeadClient, name: str, head: str, begun: int) -> None:
    """Wait until the head lists this machine as able to run jobs.

    `begun` is the size in bytes that slurmd's log had before this setup. Raises SetupFailed, with the reason, after a
    minute.
    """
    deadline = time.monotonic() + IDLE_S
    while True:
        try:
            found = client.state(name)
        except InvitationRefused as error:
            found = StateAnswer(state="unknown", reason=error.message)
        if found.state in WORKING and not found.unreachable:
            return
        if time.monotonic() > deadline:
            raise SetupFailed(explain(name, head, found, _log_since(begun)))
        time.sleep(0.3)


def explain(name: str, head: str, found: StateAnswer, log: str) -> str:
    """Return a text for users on why a node cannot run jobs, from the head's answer and from slurmd's log."""
    said = f"{head} lists {name} as {found.state}{f' ({found.reason})' if found.reason else ''}"
    if advice := advise(log):
        return f"{said}; slurmd here: {advice[0]}: {advice[1]}"
    if found.unreachable:
        return f"{said}, and cannot reach port {NODE_PORT} here ({found.unreachable}): open it in this firewall"
    return f"{said}: see {NODE_LOG}, and daylight cluster status"


def _log_since(begun: int) -> str:
    """Return what slurmd has written to its log after the first `begun` bytes."""
    if not NODE_LOG.exists():
        return ""
    with NODE_LOG.open("rb") as file:
        file.seek(begun)
        return file.read().decode(errors="replace")
