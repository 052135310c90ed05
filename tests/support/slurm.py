"""Run a real Slurm for tests: munged, slurmctld and several slurmd on this machine, in a folder."""

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest

from tests.support import slurmdbd
from tests.support.guard import Guard
from tests.support.ports import free_ports

NODES = ("n1", "n2", "n3")
PATIENCE_S = 60.0
SAVE_S = 6.0  # at most, after a change
LASTING = Path(__file__).with_name("lasting_forkservers")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
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
MinJobAge={job_age}
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
TaskProlog={folder}/task-prolog
{more}
{nodes}
PartitionName=main Nodes={all} Default=YES MaxTime=60 State=UP PriorityTier=1{main}
PartitionName=small Nodes=n1 MaxTime=60 State=UP PriorityTier=2{small}
"""


def missing(*more: str) -> list[str]:
    """Return the programs of Slurm, and of `more`, that are not installed.

    Debian puts daemons where only root looks.
    """
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in (*_PROGRAMS, *more) if shutil.which(name, path=path) is None]


class Slurm:
    """Running Slurm: its folder, its configuration, and its daemons."""

    def __init__(self, folder: Path, guard: Guard, own_disks: Mapping[Path, str]) -> None:
        self.folder, self.conf = folder, folder / "slurm.conf"
        self._own_disks = own_disks
        self._guard = guard
        self._pids: dict[str, int] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that direct Slurm's commands to this Slurm."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        own["MYSQL_UNIX_PORT"] = str(slurmdbd.socket(self.folder))
        return own | {"SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of Slurm, and return its output."""
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
        commands |= {each: slurmdbd.command(each, self.folder) for each in slurmdbd.DAEMONS}
        command = commands.get(name, ["slurmd", "-D", "-N", name, "-f", str(self.conf)])
        command[0] = str(shutil.which(command[0], path=self.environment["PATH"]))
        if name in NODES and self._own_disks:
            disks = [(shlex.quote(str(at)), options) for at, options in self._own_disks.items()]
            mounts = " && ".join(f"mount -t tmpfs {options} tmpfs {at}" for at, options in disks)
            command = [str(shutil.which("unshare")), "--mount", "sh", "-c", f"{mounts} && exec {shlex.join(command)}"]
        self._pids[name] = self._guard.start(command, self.folder / f"{name}.out", self.environment)

    def on(self, node: str, path: Path) -> Path:
        """Return the path in this process's file system of a file on a node's own disk."""
        return Path(f"/proc/{self._pids[node]}/root{path}")

    def set_on(self, node: str, **variables: str) -> None:
        """Set these environment variables for tasks that start on a node; without any, remove them."""
        lines = [f"export {name}={value}\n" for name, value in variables.items()]
        (self.folder / f"variables-{node}").write_text("".join(lines))

    @contextlib.contextmanager
    def lasting_forkservers(self) -> Iterator[None]:
        """Let the launchers that begin on a node share a forkserver, instead of importing torch each for its own job.

        On a node with a PYTHONPATH of its own each has one of its own, as elsewhere.
        """
        lines = f"export PYTHONPATH={LASTING}\nexport NODE_FORKSERVERS={self.folder}\n"
        (self.folder / "variables").write_text(lines)
        yield
        (self.folder / "variables").unlink()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Kill a daemon, and wait until it is gone; the jobs of a slurmd continue to run."""
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
        """Wait until the controller has written its state; otherwise it forgets new jobs when it is killed."""
        begun = time.time()
        state = self.folder / "state" / "job_state"  # missing before the first job

        def written() -> bool:
            return (state.exists() and state.stat().st_mtime > begun) or time.time() > begun + SAVE_S

        self.wait(written, "slurmctld saves its state")

    def accounts(self, *commands: str) -> None:
        """Run commands of sacctmgr; they take effect at once."""
        for each in commands:
            self.run("sacctmgr", "-i", *each.split())

    def limits(self, **limits: object) -> None:
        """Set limits of this user in the account `lab`; the controller applies them at once."""
        if limits:
            words = " ".join(f"{name}={value}" for name, value in limits.items())
            self.accounts(f"modify user {_user()} where account=lab set {words}")

    def idle(self) -> None:
        """Wait until all nodes are idle."""
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%T", check=False).split() in (["idle"], ["idle"] * 2), "nodes")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        begun = time.monotonic()
        while not condition():
            waited = time.monotonic() - begun
            if waited > PATIENCE_S:
                logs = "\n".join(f"== {path}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"did not happen in {PATIENCE_S:g} s: {what}\n{logs}")
            time.sleep(min(max(0.05, waited / 20), 0.5))  # most conditions run one of Slurm's programs


@contextlib.contextmanager
def slurm(
    *,
    cpus: int = 8,
    gpus: int = 0,
    preemption: Literal["", "CANCEL", "REQUEUE"] = "",
    own_disks: Mapping[Path, str] | None = None,
    accounting: bool = False,
    job_age: int = 300,
    closed: bool = False,
) -> Iterator[Slurm]:
    """Provide a Slurm of three nodes and two partitions: `main` with all nodes, `small` with the first.

    Its jobs end with it. `gpus` is the number of pretended GPUs of each node, which needs root; with `preemption` jobs
    in `small` end those in `main`. In place of the folders `own_disks` each node has an empty disk of its own, mounted
    with these options, which needs root. With `accounting` it has a slurmdbd, whose only account is `lab` with this
    user. `job_age` is the number of seconds for which the controller knows an ended job. `closed` adds a partition of
    this name, which nobody may use.
    """
    if lacking := missing(*(slurmdbd.PROGRAMS if accounting else ())):
        packages = "slurm-wlm munge slurmdbd mariadb-server" if accounting else "slurm-wlm munge"
        reason = f"{', '.join(lacking)} not found (Debian: apt-get install {packages})"
        pytest.fail(f"{reason}: .ci/run installs it") if os.environ.get("CI") == "true" else pytest.skip(reason)
    if own_disks and (problem := _no_mounts()):
        reason = f"a node with a disk of its own needs a mount namespace: {problem}"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="daylight-slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _configure(folder, cpus, gpus, preemption, accounting, job_age, closed)
        guard = Guard()
        try:
            running = Slurm(folder, guard, own_disks or {})
            running.start("munged")
            running.wait((folder / "munge" / "socket").exists, "munged listens")
            for daemon in slurmdbd.DAEMONS if accounting else ():
                running.start(daemon)
                running.wait(slurmdbd.wait_for(daemon, folder, running.run), f"{daemon} answers")
            if accounting:
                running.accounts("add cluster daylight", "add account lab", f"add user {_user()} account=lab")
                running.accounts(f"modify user {_user()} set DefaultAccount=lab")  # root has one of its own
            for daemon in ("slurmctld", *NODES):
                running.start(daemon)
            running.answers()
            running.idle()
            yield running
        finally:
            guard.end()


def _no_mounts() -> str:
    """Return why this process may not mount file systems in a namespace; "" if it may."""
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True, text=True, check=False).stderr.strip()


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _configure(
    folder: Path, cpus: int, gpus: int, preemption: str, accounting: bool, job_age: int, closed: bool
) -> None:
    """Write the configuration and the munge key."""
    folder.chmod(0o755)  # so that jobs of other users find it
    prolog = folder / "task-prolog"  # slurmd takes the lines that it prints into the environment of the task
    variables = f'"{folder}/variables" "{folder}/variables-$SLURMD_NODENAME"'
    prolog.write_text(f"#!/bin/sh\ncat {variables} 2>/dev/null || true\n")
    prolog.chmod(0o755)
    for each in ("munge", "state", *(f"spool/{node}" for node in NODES)):
        (folder / each).mkdir(parents=True)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(128))
    (folder / "munge" / "key").chmod(0o600)
    controller, database, *ports = free_ports(2 + len(NODES))
    host = os.uname().nodename
    gres = f" Gres=gpu:a100:{gpus}" if gpus else ""
    nodes = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=8000{gres}"
        for node, port in zip(NODES, ports, strict=True)
    ]
    more = ["GresTypes=gpu"] if gpus else []
    if gpus:
        (folder / "gres.conf").write_text("".join(_devices(folder, node, gpus) for node in NODES))
    more += ["PreemptType=preempt/partition_prio", f"PreemptMode={preemption}"] if preemption else []
    more.append(slurmdbd.configure(folder, _user(), database) if accounting else _NO_ACCOUNTING)
    text = _CONF.format(
        host=host,
        user=_user(),
        folder=folder,
        ports=[controller],
        nodes="\n".join(nodes),
        all=",".join(NODES),
        main=f" PreemptMode={preemption} GraceTime=5" if preemption else "",
        small="",
        more="\n".join(more),
        job_age=job_age,
    )
    if closed:
        text += "PartitionName=closed Nodes=n3 AllowGroups=nogroup DisableRootJobs=YES\n"
    (folder / "slurm.conf").write_text(text)


def _devices(folder: Path, node: str, gpus: int) -> str:
    """Create the device files of a node's simulated GPUs; return its line of gres.conf."""
    for number in range(gpus):
        os.mknod(folder / f"{node}-gpu{number}", 0o20666, os.makedev(1, 3))
    return f"NodeName={node} Name=gpu Type=a100 File={folder}/{node}-gpu[0-{gpus - 1}]\n"
