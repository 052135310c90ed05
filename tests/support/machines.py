"""Simulate two bare machines by namespaces, each with a root file system, processes, a name and an address."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import slurm
from tests.support.guard import Guard
from tests.support.world import until

ROOT = Path(__file__).parents[2]
COMMAND_S = 280.0
_TOOLS = ("unshare", "nsenter", "ip", "mount", "pivot_root", "openssl", "runuser")
_ALL = ("--mount", "--uts", "--ipc", "--net", "--pid")


class BareMachine:
    """Simulated machine: its name, its address, and commands that run there as root."""

    def __init__(self, name: str, address: str, pid: int) -> None:
        self.name, self.address, self.pid = name, address, pid
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "DAYLIGHT"))
        }
        self.environment |= {"HOME": "/root", "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine."""
        done = subprocess.run(
            [*self._enter(), *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert not check or done.returncode == 0, f"{self.name}: {command}:\n{done.stdout}{done.stderr}{self.logs()}"
        return done

    def begin(self, *command: str) -> subprocess.Popen[str]:
        """Start a command on the machine, without waiting for its end."""
        pipe = subprocess.PIPE
        return subprocess.Popen([*self._enter(), *command], env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def path(self, path: str) -> Path:
        """Return the path in this process's file system of a file of the machine."""
        return Path(f"/proc/{self.pid}/root", path.lstrip("/"))

    def reboot(self) -> None:
        """Kill all processes except process 1, and empty /run; files on disks stay."""
        # The command kills itself too.
        subprocess.run([*self._enter(), "sh", "-c", "kill -9 -1"], check=False, capture_output=True)
        self.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        found = [*self.path("/var/log/slurm").glob("*.log"), self.path("/var/log/daylight-cluster.log")]
        return "".join(f"\n== {each}\n{each.read_text()[-3000:]}" for each in found if each.exists())

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self.pid}", *_ALL, "--root", "--wd", "--", "env", "--chdir=/shared"]


@contextlib.contextmanager
def two_machines(folder: Path, shared: Mapping[str, Path]) -> Iterator[tuple[BareMachine, BareMachine]]:
    """Provide two machines on one network, n1 and n2; all of their processes end with the block.

    `shared` names the folder of this machine that each has at /shared.
    """
    _need()
    guard = Guard()
    try:
        n1, n2 = (_machine(guard, folder, f"n{k}", shared[f"n{k}"], f"10.77.0.{k}") for k in (1, 2))
        for device in ("ib0", "eth0"):  # ib0 is down until a test gives it addresses, and then comes first
            ends = ["type", "veth", "peer", "name", device, "netns", str(n2.pid)]
            subprocess.run(["ip", "link", "add", device, "netns", str(n1.pid), *ends], check=True)
        for each in (n1, n2):
            each.run("ip", "address", "add", f"{each.address}/24", "dev", "eth0")
            each.run("ip", "link", "set", "eth0", "up")
        yield n1, n2
    finally:
        guard.end()


def _machine(guard: Guard, folder: Path, name: str, shared: Path, address: str) -> BareMachine:
    root, log = folder / name, folder / f"{name}.log"
    root.mkdir()
    visible = sorted({str(ROOT), sys.prefix, sys.base_prefix})  # a folder before what lies in it
    init = [sys.executable, "-I", str(ROOT / "tests/support/machine_init.py"), str(root), name, str(shared)]
    unshare = str(shutil.which("unshare"))
    outer = guard.start([unshare, *_ALL, "--fork", "--kill-child", *init, *visible], log, os.environ)
    children = Path(f"/proc/{outer}/task/{outer}/children")

    def ready() -> int | None:
        assert children.exists(), f"{name} did not start: {log.read_text()}"
        pids = children.read_text().split()
        return int(pids[0]) if pids and Path("/proc", pids[0], "root", "run", "ready").exists() else None

    return BareMachine(name, address, until(ready, f"{name} starts"))


def _need() -> None:
    """Skip the test if machines cannot be simulated; in CI, fail instead."""
    lacking = [*slurm.missing(), *(tool for tool in _TOOLS if shutil.which(tool) is None)]
    reason = f"{', '.join(lacking)} not found (Debian: slurm-wlm munge iproute2 openssl)" if lacking else ""
    if not reason:
        tried = subprocess.run(["unshare", *_ALL, "--fork", "true"], capture_output=True, text=True, check=False)
        reason = f"namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else ""
    if reason:
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
