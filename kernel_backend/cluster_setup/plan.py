"""Plan the steps that make a machine the head or a node of a cluster, start its daemons, or undo the setup."""

from __future__ import annotations

from kernel_backend.cluster_setup.cluster import (
    CONTROLLER_PORT,
    LOGS,
    MARK,
    SPOOL,
    STATE,
    Cluster,
    Member,
    cgroup_conf,
    gres_conf,
    slurm_conf,
)
from kernel_backend.cluster_setup.steps import Folder, Remove, Run, SetAside, Start, Step, Stop, Write

CLUSTER, MEMBER = "/etc/daylight/cluster.json", "/etc/daylight/member.json"
SLURM_CONF, GRES_CONF, CGROUP_CONF = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf"
MUNGE_KEY = "/etc/munge/munge.key"
CONTROLLER_UNIT, NODE_UNIT = (f"/etc/systemd/system/{name}.service.d/daylight.conf" for name in ("slurmctld", "slurmd"))
MUNGE_PID, CONTROLLER_PID, NODE_PID = "/run/munge/munged.pid", "/run/slurmctld.pid", "/run/slurmd.pid"
_CONFIGURATION = (SLURM_CONF, GRES_CONF, CGROUP_CONF)
_MUNGED = ("runuser", "-u", "munge", "--", "/usr/sbin/munged")
_CONTROLLER, _NODE = "/usr/sbin/slurmctld", "/usr/sbin/slurmd"


def head_steps(cluster: Cluster, key: bytes, systemd: bool) -> list[Step]:
    """Return the steps that make a machine the head of a cluster; carrying them out again does no harm.

    `key` is the key of munge, Slurm's authentication service. `systemd` says whether systemd is process 1 there.
    """
    return [
        Folder("/etc/daylight"),
        _key(key),
        Write(SLURM_CONF, slurm_conf(cluster).encode(), backup=True),
        Write(GRES_CONF, gres_conf(cluster).encode(), backup=True),
        Write(CGROUP_CONF, cgroup_conf(cluster).encode(), backup=True),
        Write(CLUSTER, cluster.model_dump_json(indent=2).encode()),
        *(_unit(CONTROLLER_UNIT, f"{_CONTROLLER} -D") if systemd else []),
        *(_unit(NODE_UNIT, f"{_NODE} -D") if systemd else []),
        *head_start(),
    ]


def head_start() -> list[Step]:
    """Return the steps that start those daemons of the head that do not run yet."""
    return [
        *_start_munge(),
        Folder(STATE, "slurm", 0o700),
        Folder(LOGS, "slurm"),
        Folder(SPOOL),
        Start("slurmctld", (_CONTROLLER,), CONTROLLER_PID, (*_CONFIGURATION, CONTROLLER_UNIT, MUNGE_KEY)),
        Start("slurmd", (_NODE,), NODE_PID, (*_CONFIGURATION, NODE_UNIT, MUNGE_KEY)),
        Run(("scontrol", "reconfigure"), _CONFIGURATION),
    ]


def member_steps(member: Member, key: bytes, systemd: bool) -> list[Step]:
    """Return the steps on a machine that joins a cluster; its slurmd reads Slurm's configuration from the head.

    `key` is the key of munge (Slurm's authentication service), which all machines of the cluster have. `systemd` says
    whether systemd is process 1 on the machine.
    """
    return [
        Folder("/etc/daylight"),
        _key(key),
        *(SetAside(path) for path in _CONFIGURATION),
        Write(MEMBER, member.model_dump_json(indent=2).encode()),
        *(_unit(NODE_UNIT, " ".join((_NODE, "-D", *_server(member)))) if systemd else []),
        *member_start(member),
    ]


def member_start(member: Member) -> list[Step]:
    """Return the steps that start those daemons of a machine in a cluster that do not run yet."""
    return [
        *_start_munge(),
        Folder(LOGS, "slurm"),
        Folder(SPOOL),
        Start("slurmd", (_NODE, *_server(member)), NODE_PID, (MUNGE_KEY, MEMBER, NODE_UNIT)),
    ]


def leave_steps(head: bool) -> list[Step]:
    """Return the steps that undo the setup of a machine; running jobs on it end.

    `head` says whether the machine is the head of the cluster or another node.
    """
    controller: list[Step] = [Stop("slurmctld", CONTROLLER_PID)] if head else []
    # The head's munge key stays: it is the machine's own, and other programs may use it.
    files = (CLUSTER, CONTROLLER_UNIT) if head else (MEMBER, MUNGE_KEY)
    return [
        Stop("slurmd", NODE_PID),
        *controller,
        Stop("munge", MUNGE_PID),
        *(Remove(path) for path in (*_CONFIGURATION, *files, NODE_UNIT)),
    ]


def _key(key: bytes) -> Step:
    return Write(MUNGE_KEY, key, "munge", 0o600, backup=True, secret=True)


def _start_munge() -> list[Step]:
    folders = [Folder(f"{path}/munge", "munge", mode) for path, mode in (("/run", 0o755), ("/var/log", 0o700))]
    return [*folders, Start("munge", _MUNGED, MUNGE_PID, (MUNGE_KEY,))]


def _server(member: Member) -> tuple[str, ...]:
    return ("--conf-server", f"{member.address}:{CONTROLLER_PORT}")


def _unit(path: str, command: str) -> list[Step]:
    """Return the steps that make systemd start a daemon by `command`, whatever the distribution's unit file says.

    `path` is the drop-in file to write. The unit files of some distributions require slurm.conf, which nodes lack.
    """
    # Restart: slurmd exits if the head does not answer, for example if the head boots later after a power cut.
    text = f"""{MARK}
[Unit]
ConditionPathExists=
[Service]
Type=simple
ExecStart=
ExecStart={command}
Restart=always
RestartSec=5
"""
    return [Folder(path.rpartition("/")[0]), Write(path, text.encode())]
