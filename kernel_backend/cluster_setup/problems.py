"""Find what keeps a machine from being the head or a node of a cluster; each problem has its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernel_backend.cluster_setup.cluster import MARK, ClusterNode
from kernel_backend.cluster_setup.machine import Machine
from kernel_backend.cluster_setup.steps import BACKUP

MOST_SKEW_S = 60.0  # munge refuses a difference of 300, and clocks drift
SUDO = 'sudo "$(command -v daylight)" cluster'
_PACKAGES = {  # packages of the head, and of other nodes
    "apt": (("slurmctld", "slurmd", "slurm-client", "munge", "openssl"), ("slurmd", "slurm-client", "munge")),
    "dnf": (("slurm-slurmctld", "slurm-slurmd", "slurm", "munge", "openssl"), ("slurm-slurmd", "slurm", "munge")),
}
_INSTALL = {"apt": "apt-get install -y --no-install-recommends", "dnf": "dnf install -y"}
_MANAGERS = {"debian": "apt", "ubuntu": "apt", "fedora": "dnf", "rhel": "dnf", "centos": "dnf"}
_HEAD = ("slurmctld", "slurmd", "munged", "scontrol", "sinfo", "openssl")
_NODE = ("slurmd", "munged", "scontrol", "sinfo")


class Problem(NamedTuple):
    """Problem of a machine or a cluster (`says`), and its remedy (`todo`)."""

    says: str
    todo: str

    def __str__(self) -> str:
        return f"{self.says}: {self.todo}"


def install_command(machine: Machine, head: bool) -> str:
    """Return the command that installs the packages that a machine needs; "" if its distribution is not known.

    `head` says whether the machine is to be the head or another node.
    """
    manager = next((_MANAGERS[each] for each in machine.distribution if each in _MANAGERS), "")
    return f"{_INSTALL[manager]} {' '.join(_PACKAGES[manager][0 if head else 1])}" if manager else ""


def missing(machine: Machine, head: bool) -> tuple[str, ...]:
    """Return the names of the programs that a machine lacks to be the head, or another node."""
    return tuple(name for name in (_HEAD if head else _NODE) if name not in machine.programs)


def before_setup(machine: Machine, head: bool, slurm_conf: bytes | None, force: bool) -> list[Problem]:
    """Return the problems that a machine has by itself, regardless of other machines.

    `slurm_conf` is the content of its slurm.conf, None if it has none. `force` allows replacing one that Daylight did
    not write.
    """
    found = []
    if not machine.root:
        found.append(Problem("only root may set up a machine", f"write {SUDO} ..."))
    if lacking := missing(machine, head):
        command = install_command(machine, head)
        todo = f"{command} (or add --install)" if command else "install Slurm and munge from the distribution"
        if command.startswith("dnf"):
            todo += "; on RHEL and its derivatives they are in EPEL: dnf install -y epel-release"
        found.append(Problem(f"{', '.join(lacking)} not found", todo))
    if machine.name in ("", "localhost"):
        todo = "hostnamectl set-hostname n1, or another name that no other machine has"
        found.append(Problem("this machine has no name of its own", todo))
    if not machine.addresses:
        found.append(Problem("this machine has no network besides loopback", "configure its network"))
    if slurm_conf is not None and not slurm_conf.startswith(MARK.encode()) and not force:
        todo = f"--force renames it to slurm.conf{BACKUP}, and daylight cluster leave brings it back"
        found.append(Problem("/etc/slurm/slurm.conf belongs to another Slurm", todo))
    return found


def choose_address(addresses: tuple[str, ...], wanted: str | None, default: str) -> str | Problem:
    """Return the address for the head: `wanted` if given, else `default` (that of the default route), else the first.

    `addresses` are those of the machine; if it has not the wanted one, a problem is returned.
    """
    if wanted is not None and wanted not in addresses:
        return Problem(f"{wanted} is no address of this machine", f"--address takes one of {', '.join(addresses)}")
    return wanted or (default if default in addresses else addresses[0])


def taken_ports(holders: Mapping[int, str]) -> list[Problem]:
    """Return a problem for each of Slurm's ports that another program occupies; `holders` has the program by port."""
    todo = "end it, or move it to another port"
    return [Problem(f"port {port} is taken by {holder}", todo) for port, holder in holders.items()]


def between(head: Machine, other: Machine, nodes: Iterable[ClusterNode], address: str, skew: float) -> list[Problem]:
    """Return the problems that keep the machine `other` from joining the cluster of `head`.

    `nodes` are the nodes of the cluster. `address` is the address of `other`, whose clock is `skew` seconds ahead.
    """
    found = []
    ours, theirs = (each.slurm.split(".")[:2] for each in (head, other))
    if ours != theirs:
        todo = "install the packages of the same release of the distribution on both"
        found.append(Problem(f"Slurm {other.slurm} here, {head.slurm} on {head.name}", todo))
    if abs(skew) > MOST_SKEW_S:
        way = "ahead of" if skew > 0 else "behind"
        todo = "set both by NTP (timedatectl set-ntp true): munge refuses credentials if clocks disagree"
        found.append(Problem(f"this clock is {abs(skew):.0f} s {way} that of {head.name}", todo))
    uid = head.accounts.get("slurm")
    if uid != other.accounts.get("slurm"):
        todo = f"usermod -u {uid} slurm and groupmod -g {uid} slurm here, then chown -R slurm: /var/log/slurm"
        found.append(Problem(f"user slurm is {other.accounts.get('slurm')} here, {uid} on {head.name}", todo))
    taken = {each.name: each.address for each in nodes} | {head.name: ""}
    if taken.get(other.name, address) != address:
        todo = "hostnamectl set-hostname with another name here; or, if that machine is gone, on the head: "
        todo += f"daylight cluster remove {other.name}"
        found.append(Problem(f"{other.name} is the name of another machine of the cluster", todo))
    return found


def different_users(head: Machine, other: Machine) -> list[str]:
    """Return a note on each user who is missing on the machine `other` or has another uid there than on the head.

    Jobs of such a user cannot run on both.
    """
    notes = []
    for name, uid in head.users.items():
        there = other.users.get(name)
        if there is None:
            notes.append(f"note: user {name} is missing here: useradd -u {uid} {name}")
        elif there != uid:
            notes.append(f"note: user {name} is {there} here, {uid} on {head.name}: they could not use each other")
    return notes
