"""Define the steps of a setup: files to write, daemons to run, commands to call; `--dry-run` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DaemonName = Literal["munge", "slurmctld", "slurmd"]  # as the units of systemd are called
BACKUP = ".before-daylight"


@dataclass(frozen=True)
class Folder:
    """Make a folder with this owner and mode."""

    path: str
    owner: str = "root"
    mode: int = 0o755

    def __str__(self) -> str:
        return f"install -d -m {self.mode:o} -o {self.owner} {self.path}"


@dataclass(frozen=True)
class Write:
    """Write a file; with `backup`, a file of another origin is renamed first."""

    path: str
    content: bytes
    owner: str = "root"
    mode: int = 0o644
    backup: bool = False
    secret: bool = False

    def __str__(self) -> str:
        head = f"write {self.path} (mode {self.mode:o}, owner {self.owner})"
        if self.secret:
            return f"{head}: a secret"
        return "\n".join([f"{head}:", *(f"    {line}" for line in self.content.decode().splitlines())])


@dataclass(frozen=True)
class SetAside:
    """Rename a file to its backup, if there is one that is not ours."""

    path: str

    def __str__(self) -> str:
        return f"mv {self.path} {self.path}{BACKUP}, if there is one"


@dataclass(frozen=True)
class Remove:
    """Remove a file of ours, and restore its backup."""

    path: str

    def __str__(self) -> str:
        return f"rm {self.path}, or restore {self.path}{BACKUP} if there is one"


@dataclass(frozen=True)
class Run:
    """Call a command, again and again until its daemon answers; with `after`, only if one of these files changed."""

    words: tuple[str, ...]
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Start:
    """Let a daemon run; restart it if one of the files `after` has changed.

    `plain` is the command where systemd is not process 1, `pid_file` where the daemon then writes its process id.
    """

    daemon: DaemonName
    plain: tuple[str, ...]
    pid_file: str
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"start {self.daemon}: systemctl enable --now {self.daemon}, without systemd {' '.join(self.plain)}"


@dataclass(frozen=True)
class Stop:
    """End a daemon, and do not start it at the next boot."""

    daemon: DaemonName
    pid_file: str

    def __str__(self) -> str:
        return f"stop {self.daemon}"


Step = Folder | Write | SetAside | Remove | Run | Start | Stop
