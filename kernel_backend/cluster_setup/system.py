"""Carry out the steps of a setup on this machine; no other module writes system files or calls system commands."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kernel_backend.cluster_setup.cluster import MARK
from kernel_backend.cluster_setup.machine import PATH
from kernel_backend.cluster_setup.steps import BACKUP, Folder, Remove, Run, SetAside, Start, Step, Stop, Write
from kernel_backend.durable import replacing
from kernel_backend.errors import DaylightError

COMMAND_S = 60.0
STOP_S = 20.0


class SetupFailed(DaylightError):
    """Error: a step of the setup failed; the message has the error output of its command."""

    http_status = 500


class System:
    """Executor of steps on this machine; it remembers which files and daemons they have changed."""

    def __init__(self, systemd: bool) -> None:
        self._systemd = systemd
        self._changed: list[str] = []  # paths of changed files and names of changed daemons

    def carry_out(self, steps: Iterable[Step], say: Callable[[str], None]) -> None:
        """Carry out these steps in order; call `say` with a line for each change. Raises SetupFailed if one fails."""
        for step in steps:
            before = len(self._changed)
            try:
                self._carry_out(step)
            except OSError as error:
                raise SetupFailed(f"{str(step).splitlines()[0]} {error.strerror or error}") from error
            for each in self._changed[before:]:
                say(f"changed: {each}")

    def running(self, step: Start | Stop) -> bool:
        """Return True if the daemon that this step starts or stops is running."""
        if self._systemd:
            return _call(("systemctl", "is-active", "--quiet", step.daemon)).returncode == 0
        return _pid(step) is not None

    def _carry_out(self, step: Step) -> None:
        if isinstance(step, Folder):
            self._folder(step)
        elif isinstance(step, Write):
            self._write(step)
        elif isinstance(step, SetAside):
            self._set_aside(Path(step.path))
        elif isinstance(step, Remove):
            self._remove(Path(step.path))
        elif isinstance(step, Run):
            if not step.after or self._has_changed(step.after):
                _retry(step.words)
        elif isinstance(step, Start):
            self._start(step)
        else:
            self._stop(step)

    def _has_changed(self, paths: Iterable[str]) -> bool:
        return bool(set(paths) & set(self._changed))

    def _folder(self, step: Folder) -> None:
        path = Path(step.path)
        if not path.is_dir():
            path.mkdir(parents=True)
            self._changed.append(step.path)
        os.chown(path, *_ids(step.owner))
        path.chmod(step.mode)

    def _write(self, step: Write) -> None:
        path = Path(step.path)
        if not path.exists() or path.read_bytes() != step.content:
            if step.backup:
                self._set_aside(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, mode=step.mode) as file:
                file.write(step.content)
            self._changed.append(step.path)
        os.chown(path, *_ids(step.owner))
        path.chmod(step.mode)

    def _set_aside(self, path: Path) -> None:
        backup = Path(f"{path}{BACKUP}")
        if path.exists() and not backup.exists() and not path.read_bytes().startswith(MARK.encode()):
            path.rename(backup)
            self._changed.append(str(backup))

    def _remove(self, path: Path) -> None:
        backup = Path(f"{path}{BACKUP}")
        if not path.exists() and not backup.exists():
            return
        path.unlink(missing_ok=True)
        if backup.exists():
            backup.rename(path)
        self._changed.append(str(path))

    def _start(self, step: Start) -> None:
        running = self.running(step)
        if self._systemd:
            _must(("systemctl", "daemon-reload"))
            _must(("systemctl", "enable", "--quiet", step.daemon))
        if running and not self._has_changed(step.after):
            return
        if self._systemd:
            _must(("systemctl", "restart", step.daemon))
        else:
            _end(step)
            _must(step.plain)
        self._changed.append(step.daemon)

    def _stop(self, step: Stop) -> None:
        if not self.running(step):
            return
        if self._systemd:
            _must(("systemctl", "disable", "--now", "--quiet", step.daemon))
        else:
            _end(step)
        self._changed.append(step.daemon)


def run_shown(words: tuple[str, ...]) -> None:
    """Call a command, such as a package manager, with its output on the terminal; raise SetupFailed if it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    code = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        raise SetupFailed(f"{' '.join(words)}: exit code {code}")


def output(words: tuple[str, ...]) -> str:
    """Return the output of a command; raise SetupFailed, with the last line of its error output, if it fails."""
    return _must(words)


def _retry(words: tuple[str, ...]) -> None:
    """Call a command until it succeeds, since the daemon that it needs may not answer yet.

    Raises SetupFailed if it still fails after COMMAND_S seconds.
    """
    deadline = time.monotonic() + COMMAND_S
    while True:
        try:
            _must(words)
            return
        except SetupFailed:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def _must(words: tuple[str, ...]) -> str:
    done = _call(words)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise SetupFailed(f"{' '.join(words)}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout


def _call(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    program = shutil.which(words[0], path=PATH)
    if program is None:
        raise SetupFailed(f"{words[0]} not found in {PATH}")
    # The environment is new, as variables of a job or a shell could select another Slurm.
    try:
        return subprocess.run(
            (program, *words[1:]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
            env={"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root"},
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise SetupFailed(f"{' '.join(words)}: no end after {COMMAND_S:g} s") from None


def _end(step: Start | Stop) -> None:
    """Stop a daemon that was started without systemd, if it runs, and wait until its process has ended."""
    pid, deadline = _pid(step), time.monotonic() + STOP_S
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    while _pid(step) == pid:
        if time.monotonic() > deadline:
            raise SetupFailed(f"{step.daemon} (process {pid}) does not end: kill -9 {pid}")
        time.sleep(0.05)


def _pid(step: Start | Stop) -> int | None:
    """Return the process id in a daemon's pid file; None unless the process runs and is this daemon."""
    program = "munged" if step.daemon == "munge" else step.daemon
    try:
        pid = int(Path(step.pid_file).read_text())
        state = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    name, _, rest = state.partition("(")[2].rpartition(")")
    return pid if name.startswith(program) and rest.split()[0] != "Z" else None


def _ids(owner: str) -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        raise SetupFailed(f"there is no user {owner}: the distribution's packages make it") from None
    return entry.pw_uid, entry.pw_gid
