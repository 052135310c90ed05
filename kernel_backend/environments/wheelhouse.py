"""Provide wheels to nodes that build locked environments but reach neither the home directory nor an index."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernel_backend.environments import bounded_process
from kernel_backend.environments.lock import Lock, sources
from kernel_backend.environments.storage import Environments, wheel_folder
from kernel_backend.errors import NoEnvironment, NotFound
from kernel_backend.model.record import Record
from kernel_backend.model.resources import CLOSED
from kernel_backend.model.snapshot import Environment

_SECONDS = 3600.0  # enough to download gigabytes over a slow connection


class Wheel(Record):
    """Wheel of a package that a node can fetch from the service; `key` is the name of its folder there."""

    key: str
    file: str
    size: int
    sha256: str
    name: str = ""  # name of the distribution if no index has it


class NodeEnvironment(Record):
    """Locked environment for a node to build: its lock, and the wheels that the service offers."""

    environment: Environment
    lock: Lock
    wheels: tuple[Wheel, ...]
    ready: bool = True  # False while the service downloads further wheels
    problem: str = ""  # why the service cannot download them; "" if it can


class Wheelhouse:
    """Wheels that the service offers to nodes: those that no index has, and those that were downloaded from indexes.

    Methods block.
    """

    def __init__(self, home: Path, closed: bool = False) -> None:
        """Create the wheels in `home`; if it is `closed`, no code of users is run to get them."""
        self._home, self._environments, self._closed = home, Environments(home, closed), closed

    def offer(self, environment: Environment) -> NodeEnvironment:
        """Return an environment's lock, and the wheels that a node must fetch from the service, as no index has them.

        Raises NoEnvironment if the lock is not stored.
        """
        lock = self._environments.lock(environment)
        if lock is None or environment.daylight is None:
            raise NoEnvironment("the lock of this environment is gone: submit it again")
        kept = {"daylight": environment.daylight, **lock.files}
        wheels = tuple(self._described(key, name) for name, key in kept.items())
        return NodeEnvironment(environment=environment, lock=lock, wheels=wheels)

    def downloaded(self, environment: Environment) -> tuple[Wheel, ...] | None:
        """Return the wheels of an environment that came from package indexes; None until all have been downloaded."""
        listing = self._listing(environment)
        keys = listing.read_text().split() if listing.exists() else []
        complete = listing.exists() and all(map(self._file, keys))
        return tuple(map(self._described, keys)) if complete else None

    def download(self, environment: Environment, lock: Lock, python: Path) -> None:
        """Download those wheels of a lock that package indexes have, with the pip of `python`, to offer them to nodes.

        Takes minutes. Raises NoEnvironment with pip's message.
        """
        listing = self._listing(environment)
        with tempfile.TemporaryDirectory(dir=listing.parent, prefix=".wheels-") as folder:
            into, requirements = Path(folder, "wheels"), Path(folder, "lock.txt")
            into.mkdir()
            requirements.write_text(lock.text)
            if lock.text.strip():
                self._fetch(environment, requirements, into, python)
            listing.write_text("\n".join(map(self._adopt, sorted(into.iterdir()))))

    def _fetch(self, environment: Environment, requirements: Path, into: Path, python: Path) -> None:
        """Download wheels; in a closed service by its own pip, which would run the build scripts of other packages."""
        if not self._closed:
            _pip_download(requirements, into, python)
            return
        if found := sources(requirements.read_text()):
            raise NoEnvironment(f"{', '.join(found)}: no wheel is downloaded of it, and {CLOSED}")
        wheels = ("--only-binary", ":all:", "--python-version", environment.python)
        _pip_download(requirements, into, Path(sys.executable), *wheels)

    def _listing(self, environment: Environment) -> Path:
        return self._environments.folder(environment) / "wheels.txt"

    def piece(self, key: str, offset: int, size: int) -> bytes:
        """Return at most `size` bytes of a wheel from an offset; `key` is that of `Wheel`. Raises NotFound."""
        file = self._file(key)
        if file is None:
            raise NotFound(f"there is no wheel {key}")
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(size)

    def _file(self, key: str) -> Path | None:
        return next((each for each in wheel_folder(self._home, key).glob("*") if not each.name.startswith(".")), None)

    def _described(self, key: str, name: str = "") -> Wheel:
        file = self._file(key)
        if file is None:
            raise NoEnvironment(f"the wheel of {name or key[:12]} is no longer kept, and cannot be made again")
        return Wheel(key=key, file=file.name, size=file.stat().st_size, sha256=sha256_of(file), name=name)

    def _adopt(self, file: Path) -> str:
        """Move a downloaded wheel into the wheel folder named by the file's digest; return the digest."""
        key = sha256_of(file)
        wheel_folder(self._home, key).mkdir(parents=True, exist_ok=True)
        file.replace(wheel_folder(self._home, key) / file.name)
        return key


def _pip_download(requirements: Path, folder: Path, python: Path, *options: str) -> None:
    """Download the files of a lock into a folder by pip, as uv keeps no wheels: it unpacks what it downloads."""
    command = [_with_pip(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--dest", str(folder), *options, "-r", str(requirements)]
    try:
        done = bounded_process.run(command, timeout=_SECONDS, cwd=folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(f"pip download could not be run: {error}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or done.stderr.splitlines()
        raise NoEnvironment(f"pip download: {'; '.join(line.removeprefix('ERROR: ') for line in said)[:1000]}")


def _with_pip(python: Path) -> str:
    """Return an interpreter that has pip: `python`, else that of this process; raises NoEnvironment if neither has."""
    candidates: Sequence[str] = (str(python), sys.executable)
    for each in candidates:
        if os.access(each, os.X_OK):
            command = [each, "-m", "pip", "--version"]
            if bounded_process.run(command, timeout=60.0).returncode == 0:
                return each
    raise NoEnvironment(f"neither {' nor '.join(candidates)} has pip, which downloads wheels: python -m ensurepip")


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
