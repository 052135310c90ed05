"""Set up the head of a cluster (the machine that runs Slurm's controller), and admit other machines to the cluster."""

from __future__ import annotations

import base64
import secrets
import socket
import time
from pathlib import Path

from kernel_backend.cluster_setup.cluster import NODE_PORT, Cluster, ClusterNode
from kernel_backend.cluster_setup.invitation import JoinAnswer, JoinRequest, StateAnswer, StateRequest
from kernel_backend.cluster_setup.local_state import (
    Choices,
    Say,
    checked_machine,
    connection_error,
    read_cluster,
    read_member,
)
from kernel_backend.cluster_setup.machine import read_machine
from kernel_backend.cluster_setup.plan import MUNGE_KEY, head_steps
from kernel_backend.cluster_setup.problems import Problem, between, choose_address, different_users
from kernel_backend.cluster_setup.status import SINFO, WORKING, NodeStatus, parse_nodes
from kernel_backend.cluster_setup.system import SetupFailed, System, output
from kernel_backend.errors import InvalidRequest

NAME = "lab"
IDLE_S = 60.0
_KEY_BYTES = 128


def set_up(choices: Choices, say: Say) -> Cluster:
    """Make this machine the head of a cluster, and return the cluster; `say` is called with a line for each change.

    If it is the head already, the setup is renewed. With the choice `dry_run`, the steps are only printed. Raises
    InvalidRequest if the machine or a choice does not allow it, and SetupFailed if a step fails.
    """
    if (member := read_member()) is not None:
        raise InvalidRequest(f"this machine is a node of {member.name} ({member.head}): daylight cluster leave first")
    machine, before = checked_machine(True, choices, say), read_cluster()
    wanted = choices.address or (before.address if before else None)
    address = choose_address(machine.addresses, wanted, _default_address())
    if isinstance(address, Problem):
        raise InvalidRequest(str(address))
    if choices.cgroups and not machine.cgroups:
        raise InvalidRequest("--cgroups needs systemd and cgroup version 2, which this machine lacks: leave it out")
    cluster = Cluster(
        name=choices.name or (before.name if before else NAME),
        head=machine.name,
        nodes=before.nodes if before else (),
        cgroups=choices.cgroups or (before is not None and before.cgroups),
    ).with_node(ClusterNode(name=machine.name, address=address, hardware=machine.hardware))
    steps = head_steps(cluster, munge_key(), machine.systemd)
    if choices.dry_run:
        for step in steps:
            say(str(step))
        return cluster
    System(machine.systemd).carry_out(steps, say)
    wait_for(machine.name)
    return cluster


def remove(name: str, say: Say) -> Cluster:
    """Remove the node of this name from the cluster, and return the cluster without it.

    Raises InvalidRequest if this machine is not the head, or the node has not joined.
    """
    cluster = read_cluster()
    if cluster is None:
        raise InvalidRequest("this machine is no head of a cluster: remove nodes on the head")
    others = [node.name for node in cluster.nodes if node.name != cluster.head]
    if name not in others:
        raise InvalidRequest(f"{name} is no node that joined; those that did: {', '.join(others) or 'none yet'}")
    machine = checked_machine(True, Choices(), say)
    cluster = cluster.without_node(name)
    System(machine.systemd).carry_out(head_steps(cluster, munge_key(), machine.systemd), say)
    return cluster


def admit(request: JoinRequest, address: str, key: bytes, say: Say) -> JoinAnswer:
    """Add the machine that requests to join, and whose address is `address`, to the cluster as a node.

    If problems prevent that, the answer has only these. `key` is the key of munge, Slurm's authentication service; the
    answer has it, as all machines of a cluster must have the same.
    """
    cluster, machine, other = read_cluster(), read_machine(), request.machine
    if cluster is None:
        return JoinAnswer(problems=(Problem("the head has left the cluster", "daylight cluster init there"),))
    found = between(machine, other, cluster.nodes, address, request.clock - time.time())
    if cluster.cgroups and not other.cgroups:
        found.append(Problem("no cgroup version 2 of systemd here", "set the head up without --cgroups"))
    if found:
        return JoinAnswer(problems=tuple(found))
    cluster = cluster.with_node(ClusterNode(name=other.name, address=address, hardware=other.hardware))
    System(machine.systemd).carry_out(head_steps(cluster, key, machine.systemd), say)
    return JoinAnswer(
        cluster=cluster.name,
        head=cluster.head,
        address=cluster.address,
        key=base64.b64encode(key).decode(),
        notes=tuple(different_users(machine, other)),
    )


def state_of(request: StateRequest, address: str) -> StateAnswer:
    """Return the state that Slurm reports for the requested node, and whether its slurmd accepts connections.

    The connection is tried at `address`, that of the node.
    """
    blocked = connection_error(address, NODE_PORT)
    try:
        found = next((node for node in nodes() if node.name == request.name), None)
    except SetupFailed as error:
        return StateAnswer(state="unknown", reason=error.message, unreachable=blocked)
    if found is None:
        return StateAnswer(state="unknown", reason="Slurm does not list it", unreachable=blocked)
    return StateAnswer(state=found.state, reason=found.reason, unreachable=blocked)


def nodes() -> list[NodeStatus]:
    """Return all nodes as sinfo lists them; raise SetupFailed if Slurm does not answer."""
    return parse_nodes(output(SINFO))


def wait_for(name: str) -> None:
    """Wait until the head, whose name as a node is `name`, can run jobs; raise SetupFailed after a minute."""
    deadline = time.monotonic() + IDLE_S
    while (found := state_of(StateRequest(name=name), "127.0.0.1")).state not in WORKING:
        if time.monotonic() > deadline:
            raise SetupFailed(f"{name} is {found.state} ({found.reason or 'no reason'}): see daylight cluster status")
        time.sleep(0.2)


def munge_key() -> bytes:
    """Return the key of this machine's munge (Slurm's authentication service), or a new one if there is none."""
    path = Path(MUNGE_KEY)
    return path.read_bytes() if path.exists() else secrets.token_bytes(_KEY_BYTES)


def _default_address() -> str:
    """Return the address of this machine on its default route, "" if it has none; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:  # no default route
            return ""
        return str(probe.getsockname()[0])
