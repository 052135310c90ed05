"""Read the properties of this machine that the setup of a cluster depends on."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.model.record import Record
from kernel_backend.network import network_devices

PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"  # with the folders of daemons
PROGRAMS = ("slurmctld", "slurmd", "munged", "scontrol", "sinfo", "openssl")
ACCOUNTS = ("slurm", "munge")
_MODEL = re.compile(r"Model:\s*((?:NVIDIA|Tesla|GeForce|Quadro|\s)*)(\S.*)")
_FIRST_USER, _LAST_USER = 1000, 60000  # range of uids of users' accounts


class Hardware(Record):
    """Hardware of a node that Slurm offers to jobs."""

    cpus: int
    memory_mib: int
    gpus: Mapping[str, int] = {}  # number by type, such as {"h100": 8}


class Machine(Record):
    """Properties of a machine that the setup of a cluster depends on."""

    name: str  # host name without its domain
    addresses: tuple[str, ...]  # its IP addresses, without loopback
    root: bool  # whether this process runs as root
    systemd: bool  # whether systemd is process 1
    cgroups: bool  # whether systemd manages cgroups version 2
    distribution: tuple[str, ...]  # ID and ID_LIKE of /etc/os-release
    programs: tuple[str, ...]  # installed programs of PROGRAMS
    slurm: str  # version of Slurm; empty if it is not installed
    accounts: Mapping[str, int]  # uids of ACCOUNTS
    users: Mapping[str, int]  # uids of users
    hardware: Hardware


def read_machine() -> Machine:
    """Return the properties of this machine."""
    uids = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    systemd = Path("/run/systemd/system").is_dir()
    return Machine(
        name=socket.gethostname().partition(".")[0],
        addresses=tuple(each.address for each in network_devices() if not each.address.startswith("127.")),
        root=os.geteuid() == 0,
        systemd=systemd,
        cgroups=systemd and Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        distribution=distribution(_text(Path("/etc/os-release"))),
        programs=tuple(name for name in PROGRAMS if shutil.which(name, path=PATH)),
        slurm=_slurm_version(),
        accounts={name: uids[name] for name in ACCOUNTS if name in uids},
        users={name: uid for name, uid in uids.items() if _FIRST_USER <= uid < _LAST_USER},
        hardware=Hardware(
            cpus=os.cpu_count() or 1,
            memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            gpus=gpu_types([_text(each) for each in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]),
        ),
    )


def gpu_types(texts: list[str]) -> dict[str, int]:
    """Return the number of GPUs of each type, such as `a100`.

    `texts` are the contents of the files `information` in `/proc/driver/nvidia/gpus`, one for each GPU.
    """
    counts: dict[str, int] = {}
    for text in texts:
        found = _MODEL.search(text)
        words = re.findall(r"[a-z0-9]+", found[2].lower()) if found else []
        # Examples: `A100-SXM4-80GB` becomes `a100`, and `RTX A6000` becomes `rtx_a6000`.
        name = "_".join(words[:2] if words[:1] == ["rtx"] else words[:1]) or "gpu"
        counts[name] = counts.get(name, 0) + 1
    return counts


def distribution(text: str) -> tuple[str, ...]:
    """Return the names of a Linux distribution and of those that it derives from, such as `ubuntu` and `debian`.

    `text` is the content of /etc/os-release.
    """
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return tuple(word for name in ("ID", "ID_LIKE") for word in fields.get(name, "").strip("\"'").split())


def _slurm_version() -> str:
    program = shutil.which("slurmd", path=PATH)
    if program is None:
        return ""
    said = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=10, check=False).stdout
    return (said.split() or [""])[-1]  # `slurm-wlm 22.05.8`


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
