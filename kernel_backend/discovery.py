"""Find the user's service, or start it, by the files `service.json`, `token` and `service.lock` in the home directory.

There is one service per home directory (DAYLIGHT_HOME), which holds the lock on `service.lock`. `service.json` has its
address, and `token` (mode 0600) authenticates its owner. Uses only the standard library and psutil, as every kernel
imports this.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from kernel_backend import process_identity
from kernel_backend.durable import replacing
from kernel_backend.errors import Conflict, ServiceUnreachable
from kernel_backend.home import home as default_home
from kernel_backend.home import writing

START_LIMIT = 30.0  # for a service to listen, where a page waits for it
TOLD_S = 3.0  # before a caller that waits for a service is told so
END_LIMIT = 60.0  # for a service to end
LOG_LIMIT = 5_000_000  # bytes of service.log, after which it is truncated
# Modules of the [server] extra, and environment variables that a service must not inherit from a kernel.
# DAYLIGHT_ATTEMPT marks an attempt's processes: a service with it would be killed together with that attempt.
_NEEDED = ("alembic", "sqlalchemy", "tornado", "traitlets")
_KERNEL_ONLY = ("MPLBACKEND", "JPY_PARENT_PID", "JPY_SESSION_NAME", "DAYLIGHT_ATTEMPT")


Say = Callable[[str], None]


class CannotStart(ServiceUnreachable):
    """Error: no service is running and none can be started, so that a retry would not help."""


class Address(NamedTuple):
    """Address and token of a service; `pid` is 0 if the address was configured, not read from `service.json`."""

    url: str
    token: str
    pid: int = 0
    user: int | None = None  # uid of the service, if known

    @property
    def trusted(self) -> frozenset[int]:
        """Return the uids whose processes may receive the token: root, this process's user and the service's user."""
        return frozenset({0, os.getuid(), *([] if self.user is None else [self.user])})

    @property
    def encrypted(self) -> bool:
        """Return True for https, where a certificate authenticates the server instead of its process's owner."""
        return self.url.startswith("https:")


def find(home: Path | None = None) -> Address | None:
    """Return the address of a home directory's running service; None if none runs on this machine.

    Without `home`, a hub's configuration (DAYLIGHT_URL) takes precedence over the user's own home directory. The
    process that `service.json` names must be running, since another process may have taken the port of a dead service.
    The owner of the listening process is checked for each connection (see `peers`).
    """
    if home is None and (given := _given()) is not None:
        return given
    home = home or default_home()
    noted = _noted(home)
    if noted is None or noted.machine != socket.gethostname():
        return None
    token = _read(home / "token")
    if not token or not process_identity.alive(noted.pid, noted.started):
        return None
    return Address(noted.url, token, noted.pid, (home / "token").stat().st_uid)


def start(home: Path | None = None, limit: float = math.inf, say: Say = lambda text: None) -> Address:
    """Return the address of a home directory's service; it is started if needed, and outlives this process.

    Of several callers one starts a service, and the others wait for that. A caller waits as long as the service is
    starting, at most `limit` seconds, and calls `say` with what it waits for after some seconds. Raises CannotStart,
    with the end of the log, if the service fails to start or takes longer than `limit`.
    """
    if found := find(home):
        return found
    home = home or default_home()
    wait, awaited = _Wait(home, limit, say), ""
    while True:
        with _starting(home) as starter:
            said = starter.said()
            if starter.ours and awaited and said == f"{awaited} failed":
                raise CannotStart(f"Daylight's service could not start. {_last_words(home)}")
            if starter.ours and not find(home) and _lock_is_free(home):
                _start(home, starter, wait)
        if found := find(home):
            return found
        if not starter.ours:
            awaited = said
            _check_machine(home, said.partition(" ")[0])
        elif (noted := _noted(home)) is not None and not _lock_is_free(home):
            _check_machine(home, noted.machine)
        wait.a_little(awaited)


def _start(home: Path, starter: _Starter, wait: _Wait) -> None:
    """Start a service, and return when it is announced, or has left because another process serves the home."""
    process = _spawn(home, starter.file)
    name = f"{socket.gethostname()} {process.pid}"
    starter.say(name)
    while not find(home):
        code = process.poll()
        if code:
            starter.say(f"{name} failed")
            raise CannotStart(f"Daylight's service could not start. {_last_words(home)}")
        if code == 0:
            return
        wait.a_little(name)


class _Starter(NamedTuple):
    """Lock of the process that starts a service: the service inherits its file, and so holds the lock until it ends.

    The file says which process starts, as `node17 1234`, or `node17 1234 failed`.
    """

    file: IO[str]
    ours: bool  # this process has the lock, and so may start a service

    def said(self) -> str:
        """Return what the file says."""
        return os.pread(self.file.fileno(), 100, 0).decode(errors="replace")

    def say(self, text: str) -> None:
        """Replace what the file says."""
        os.ftruncate(self.file.fileno(), 0)
        os.pwrite(self.file.fileno(), text.encode(), 0)


@contextmanager
def _starting(home: Path) -> Iterator[_Starter]:
    """Try to get the lock of the process that starts a home directory's service, for the block."""
    with writing(home):
        opened = os.open(home / "service.starting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield _Starter(file, ours=False)
        else:
            yield _Starter(file, ours=True)


class _Wait:
    """Pauses of a caller that waits for a service, until `limit` seconds have passed."""

    def __init__(self, home: Path, limit: float, say: Say) -> None:
        self._home, self._limit, self._say = home, limit, say
        self._began, self._told = time.monotonic(), False

    def a_little(self, starter: str) -> None:
        """Sleep for a moment; `starter` is the process that starts the service, "" if one is on its way out."""
        waited = time.monotonic() - self._began
        if waited > self._limit:
            late = f"Daylight's service did not start within {self._limit:g} s. "
            raise CannotStart(late + _last_words(self._home))
        if waited > TOLD_S and not self._told:
            self._told = True
            what = f"is starting (process {starter.split()[1]})" if starter else "is about to end, to be started anew"
            self._say(f"Daylight's service {what}; waiting for it. Its log is {self._home / 'service.log'}")
        time.sleep(0.05)


@contextmanager
def lock(home: Path) -> Iterator[bool]:
    """Try to lock a home directory for the block; yield True if this process got the lock, and so may be its service.

    Yields False if another process has it. The lock also ends with the process. Raises HomeUnusable.
    """
    with writing(home):
        opened = os.open(home / "service.lock", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def end(home: Path, limit: float = END_LIMIT) -> None:
    """End the service of a home directory if one runs on this machine; return when it has ended.

    Raises CannotStart if it has not ended after `limit` seconds.
    """
    deadline = time.monotonic() + limit
    told = 0
    while not _lock_is_free(home):
        running = find(home)
        if running is not None and running.pid != told:
            os.kill(running.pid, signal.SIGTERM)
            told = running.pid
        if time.monotonic() > deadline:
            raise CannotStart(f"the service of {home} (pid {told or 'unknown'}) does not end: end that process first")
        time.sleep(0.05)


def ensure_token(home: Path) -> str:
    """Return the token of a home directory, creating it if it is missing.

    Only the process that holds the home directory's lock may call this.
    """
    token = _read(home / "token")
    if not token:
        token = secrets.token_urlsafe(32)
        write_private(home / "token", token)
    return token


def announce(home: Path, host: str, port: int, prefix: str = "", token: str = "") -> Address:
    """Write this process's address and interpreter to the home directory; return the address for clients.

    `prefix` is the path at which the URL's routes begin, such as `/services/daylight`. `token`, if given, is the home
    directory's token, which is written again if its file is missing or has another content.
    """
    if token and _read(home / "token") != token:
        write_private(home / "token", token)
    pid = os.getpid()
    url = (f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}") + prefix
    noted = _Noted(pid, process_identity.started(pid), socket.gethostname(), host, port, url)
    write_private(home / "service.json", json.dumps(noted._asdict()))
    write_private(home / "server-python", sys.executable)
    return Address(noted.url, ensure_token(home), pid, os.getuid())


def announced(home: Path, token: str) -> bool:
    """Return whether the files in the home directory announce this process as the service, with this token.

    Raises Conflict if they announce another running process.
    """
    noted = _noted(home)
    if noted is None or noted.machine != socket.gethostname() or not process_identity.alive(noted.pid, noted.started):
        return False
    if noted.pid != os.getpid():
        raise Conflict(f"another service (pid {noted.pid}) serves {home}: its service.lock was deleted")
    return _read(home / "token") == token


def withdraw(home: Path) -> None:
    """Delete `service.json` if it announces this process."""
    noted = _noted(home)
    if noted is not None and noted.pid == os.getpid():
        (home / "service.json").unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner."""
    with replacing(path, mode=0o600, durable=False) as file:
        file.write(text.encode())


class _Noted(NamedTuple):
    """Content of the file `service.json`: the process of the running service, and its address."""

    pid: int
    started: float  # seconds after boot
    machine: str
    host: str
    port: int
    url: str


def _given() -> Address | None:
    """Return the address of a hub's service and the token of this notebook server, from environment variables.

    None if no address is set.
    """
    url = os.environ.get("DAYLIGHT_URL", "").rstrip("/")
    token = os.environ.get("DAYLIGHT_TOKEN") or os.environ.get("JUPYTERHUB_API_TOKEN", "")
    user = os.environ.get("DAYLIGHT_SERVICE_UID", "")
    return Address(url, token, user=int(user) if user.isdecimal() else None) if url else None


def _noted(home: Path) -> _Noted | None:
    try:
        found = json.loads(_read(home / "service.json") or "null")
        return _Noted(**{name: found[name] for name in _Noted._fields})  # a later version may have added fields
    except (KeyError, TypeError, ValueError):  # missing or invalid
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _check_machine(home: Path, machine: str) -> None:
    """Raise CannotStart if `machine`, where the service of a home directory runs or starts, is another one."""
    if machine not in ("", socket.gethostname()):
        raise CannotStart(
            f"Daylight's service for {home} runs on {machine} and listens only there: "
            "work on that machine, or set DAYLIGHT_HOME to a folder of this one"
        )


def _spawn(home: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
    """Start a service as a detached process, which inherits the file `lock`."""
    environment = {name: value for name, value in os.environ.items() if name not in _KERNEL_ONLY}
    command = [_interpreter(home), "-P", "-m", "kernel_backend"]
    with writing(home):
        opened = _open_log(home)
    with opened as log:
        return subprocess.Popen(
            command,
            cwd=home,
            env=environment | {"DAYLIGHT_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )


def _lock_is_free(home: Path) -> bool:
    with lock(home) as ours:
        return ours


def _interpreter(home: Path) -> str:
    """Return a Python that can run a service: this one, else the last one that ran the service of this home directory.

    Raises CannotStart if neither has the packages that a service needs.
    """
    if all(importlib.util.find_spec(name) for name in _NEEDED):
        return sys.executable
    other = _read(home / "server-python")
    if other and _can_serve(other):
        return other
    raise CannotStart(
        f"no Daylight service runs, and {sys.executable} cannot start one (it lacks daylight[server]): "
        "start it with: daylight serve"
    )


def _can_serve(python: str) -> bool:
    probe = f"import kernel_backend, {', '.join(_NEEDED)}"
    try:
        return subprocess.run([python, "-P", "-c", probe], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _open_log(home: Path) -> IO[bytes]:
    path = home / "service.log"
    fresh = not path.exists() or path.stat().st_size > LOG_LIMIT
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0), 0o600), "ab")


def _last_words(home: Path) -> str:
    lines = _read(home / "service.log").splitlines()[-5:]
    return "\n".join([f"The end of {home / 'service.log'}:", *lines])
