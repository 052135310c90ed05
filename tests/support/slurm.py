"""A real Slurm for tests: munged, slurmctld and several slurmd on this machine, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.guard import Guard
from tests.support.ports import free_ports

NODES = ("n1", "n2", "n3")
PATIENCE_S = 60.0
SAVE_S = 6.0  # at most, after a change
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
_CONF = """
ClusterName=daylight
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldParameters=config_overrides
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=5
TCPTimeout=2
KillWait=2
KillOnBadExit=1
OverTimeLimit=0
MinJobAge=300
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
{more}
{nodes}
PartitionName=main Nodes={all} Default=YES MaxTime=60 State=UP PriorityTier=1{main}
PartitionName=small Nodes=n1 MaxTime=60 State=UP PriorityTier=2{small}
"""


def missing() -> list[str]:
    """The programs of Slurm that are not installed here; Debian has daemons where only root looks."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in _PROGRAMS if shutil.which(name, path=path) is None]


class Slurm:
    """A running Slurm: its folder, its configuration, and its daemons."""

    def __init__(self, folder: Path, guard: Guard, own_disks: Sequence[Path] = ()) -> None:
        self.folder, self.conf = folder, folder / "slurm.conf"
        self._own_disks = [str(each) for each in own_disks]
        self._guard = guard
        self._pids: dict[str, int] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What leads Slurm's commands to this Slurm."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        return own | {"SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

    def run(self, *command: str, check: bool = True) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start(self, name: str) -> None:
        """Start `munged`, `slurmctld`, or the slurmd of a node."""
        commands = {
            "munged": [
                "munged",
                "--foreground",
                "--force",
                f"--key-file={self.folder}/munge/key",
                f"--socket={self.folder}/munge/socket",
                f"--pid-file={self.folder}/munge/pid",
                f"--seed-file={self.folder}/munge/seed",
                f"--log-file={self.folder}/munge/log",
            ],
            "slurmctld": ["slurmctld", "-D", "-f", str(self.conf)],
        }
        command = commands.get(name, ["slurmd", "-D", "-N", name, "-f", str(self.conf)])
        command[0] = str(shutil.which(command[0], path=self.environment["PATH"]))
        if name in NODES and self._own_disks:
            mounts = " && ".join(f"mount -t tmpfs tmpfs {shlex.quote(each)}" for each in self._own_disks)
            command = [str(shutil.which("unshare")), "--mount", "sh", "-c", f"{mounts} && exec {shlex.join(command)}"]
        self._pids[name] = self._guard.start(command, self.folder / f"{name}.out", self.environment)

    def on(self, node: str, path: Path) -> Path:
        """A path of a node's own disks, as seen from here."""
        return Path(f"/proc/{self._pids[node]}/root{path}")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Kill a daemon, and wait until it is gone; the jobs of a slurmd run on."""
        pid = self._pids.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        # Until it is reaped: threads of a zombie may still answer.
        self.wait(lambda: not Path(f"/proc/{pid}").exists(), f"{name} ends")

    def restart(self, name: str) -> None:
        """Kill a daemon, start it again, and wait until it answers."""
        self.kill(name)
        self.start(name)
        self.idle() if name in NODES else self.answers()

    def answers(self) -> None:
        """Wait until the controller answers."""
        self.wait(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld answers")

    def saved(self) -> None:
        """Wait until the controller has written its state, without which it forgets new jobs when it is killed."""
        begun = time.time()
        state = self.folder / "state" / "job_state"
        self.wait(lambda: state.stat().st_mtime > begun or time.time() > begun + SAVE_S, "slurmctld saves its state")

    def idle(self) -> None:
        """Wait until all nodes are idle."""
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%T", check=False).split() in (["idle"], ["idle"] * 2), "nodes")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"== {path}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"did not happen in {PATIENCE_S:g} s: {what}\n{logs}")
            time.sleep(0.05)


@contextlib.contextmanager
def slurm(*, cpus: int = 8, gpus: int = 0, preemption: bool = False, own_disks: Sequence[Path] = ()) -> Iterator[Slurm]:
    """A Slurm of three nodes and two partitions, `main` with all and `small` with the first; its jobs die with it.

    `gpus` is the number of pretended GPUs of each node, which needs root; with `preemption` jobs in `small` end those
    in `main`. In place of the folders `own_disks` each node has an empty disk of its own, which needs root.
    """
    if lacking := missing():
        reason = f"{', '.join(lacking)} not found (Debian: apt-get install slurm-wlm munge)"
        pytest.fail(f"{reason}: .ci/run installs it") if os.environ.get("CI") == "true" else pytest.skip(reason)
    if own_disks and (problem := _no_mounts()):
        reason = f"a node with a disk of its own needs a mount namespace: {problem}"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="daylight-slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _configure(folder, cpus, gpus, preemption)
        guard = Guard()
        try:
            running = Slurm(folder, guard, own_disks)
            running.start("munged")
            running.wait((folder / "munge" / "socket").exists, "munged listens")
            for daemon in ("slurmctld", *NODES):
                running.start(daemon)
            running.answers()
            running.idle()
            yield running
        finally:
            guard.end()


def _no_mounts() -> str:
    """Why this process may not mount file systems in a namespace of its own; "" if it may."""
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True, text=True, check=False).stderr.strip()


def _configure(folder: Path, cpus: int, gpus: int, preemption: bool) -> None:
    """Write the configuration and the munge key."""
    folder.chmod(0o755)  # so that jobs of other users find it
    for each in ("munge", "state", *(f"spool/{node}" for node in NODES)):
        (folder / each).mkdir(parents=True)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(128))
    (folder / "munge" / "key").chmod(0o600)
    controller, *ports = free_ports(1 + len(NODES))
    host = os.uname().nodename
    gres = f" Gres=gpu:a100:{gpus}" if gpus else ""
    nodes = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=8000{gres}"
        for node, port in zip(NODES, ports, strict=True)
    ]
    more = ["GresTypes=gpu"] if gpus else []
    if gpus:
        (folder / "gres.conf").write_text("".join(_devices(folder, node, gpus) for node in NODES))
    more += ["PreemptType=preempt/partition_prio", "PreemptMode=CANCEL"] if preemption else []
    text = _CONF.format(
        host=host,
        user=pwd.getpwuid(os.geteuid()).pw_name,
        folder=folder,
        ports=[controller],
        nodes="\n".join(nodes),
        all=",".join(NODES),
        main=" PreemptMode=CANCEL GraceTime=5" if preemption else "",
        small="",
        more="\n".join(more),
    )
    (folder / "slurm.conf").write_text(text)


def _devices(folder: Path, node: str, gpus: int) -> str:
    """Make the device files of a node's pretended GPUs; its line of gres.conf."""
    for number in range(gpus):
        os.mknod(folder / f"{node}-gpu{number}", 0o20666, os.makedev(1, 3))
    return f"NodeName={node} Name=gpu Type=a100 File={folder}/{node}-gpu[0-{gpus - 1}]\n"
