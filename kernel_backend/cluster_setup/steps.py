"""Define the steps of a setup: files to write, daemons to run, commands to call; `--dry-run` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DaemonName = Literal["munge", "slurmctld", "slurmd"]  # names of the systemd units
BACKUP = ".before-daylight"


@dataclass(frozen=True)
class Folder:
    """Step: create a folder with this owner and mode."""

    path: str
    owner: str = "root"
    mode: int = 0o755

    def __str__(self) -> str:
        return f"install -d -m {self.mode:o} -o {self.owner} {self.path}"


@dataclass(frozen=True)
class Write:
    """Step: write a file; with `backup`, a file that Daylight did not write is renamed first."""

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
    """Step: rename a file to its backup name, unless it is missing or Daylight wrote it."""

    path: str

    def __str__(self) -> str:
        return f"mv {self.path} {self.path}{BACKUP}, if there is one"


@dataclass(frozen=True)
class Remove:
    """Step: remove a file that Daylight wrote, and restore its backup."""

    path: str

    def __str__(self) -> str:
        return f"rm {self.path}, or restore {self.path}{BACKUP} if there is one"


@dataclass(frozen=True)
class Run:
    """Step: call a command, retrying until its daemon answers; with `after`, only if one of these files has changed."""

    words: tuple[str, ...]
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Start:
    """Step: start a daemon unless it runs; restart it if one of the files `after` has changed.

    Without systemd as process 1, the daemon is started by the command `plain` and writes its process id to `pid_file`.
    """

    daemon: DaemonName
    plain: tuple[str, ...]
    pid_file: str
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"start {self.daemon}: systemctl enable --now {self.daemon}, without systemd {' '.join(self.plain)}"


@dataclass(frozen=True)
class Stop:
    """Step: stop a daemon, and disable its start at boot."""

    daemon: DaemonName
    pid_file: str

    def __str__(self) -> str:
        return f"stop {self.daemon}"


Step = Folder | Write | SetAside | Remove | Run | Start | Stop
