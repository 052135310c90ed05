"""Define the steps of which a setup consists: write files, start daemons, call commands; `--dry-run` prints them."""

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
    """Step: write a file; with `backup`, an existing file that Daylight did not write is renamed first.

    `secret` keeps the content from being printed.
    """

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
    """Step: rename a file, by adding BACKUP to its name, unless it is missing or Daylight wrote it."""

    path: str

    def __str__(self) -> str:
        return f"mv {self.path} {self.path}{BACKUP}, if there is one"


@dataclass(frozen=True)
class Remove:
    """Step: remove a file that Daylight wrote; if a file was renamed for it, give that its name back."""

    path: str

    def __str__(self) -> str:
        return f"rm {self.path}, or restore {self.path}{BACKUP} if there is one"


@dataclass(frozen=True)
class Run:
    """Step: call a command, and repeat it until it succeeds, since the daemon that it needs may not answer yet.

    With `after`, it is called only if one of these files was changed by an earlier step.
    """

    words: tuple[str, ...]
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Start:
    """Step: start a daemon unless it runs; restart it if an earlier step has changed one of the files `after`.

    Without systemd as process 1, the command `plain` starts the daemon, which writes its process id to `pid_file`.
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
