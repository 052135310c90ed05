"""Store wheels, locks (pinned versions of all packages) and built environments in a home directory, by digest."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kernel_backend.durable import replacing
from kernel_backend.environments import lock as locks
from kernel_backend.environments import uv
from kernel_backend.environments.build import build, whole
from kernel_backend.environments.lock import Lock
from kernel_backend.environments.present import own_root_of, present
from kernel_backend.environments.wheel import own_wheel
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.environments import Interpreter
from kernel_backend.model.resources import CLOSED
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots import installed
from kernel_backend.snapshots.archive import PIECE
from kernel_backend.tail import opened

OWN = Path(sys.executable)
LARGEST_WHEEL = 8 * 2**30  # bytes of a wheel that was installed from a file
AGAIN_S = 86_400.0  # age from which an incomplete lock is made again; sooner if the environment is requested


class Environments:
    """Environments in a home directory; each can be rebuilt from its lock, so any of their folders may be deleted.

        <home>/snapshots/wheels/<digest>/<name>.whl     Daylight's own, and those installed from files

        <home>/environments/<id>/lock.txt               for users and pip

        <home>/environments/<id>/lock.json              the same, with distributions that could not be locked and why

        <home>/environments/<id>/venv/                  built from it

    Methods block for as long as they take, and may be called from any thread.
    """

    def __init__(self, home: Path, closed: bool = False) -> None:
        """Create access to the environments in `home`.

        If it is `closed`, no code of users is run: no interpreter that they name, and no build script of a package.
        """
        self._home, self._locks, self._closed = home, home / "environments", closed

    def interpreter(self, python: str, packages: Sequence[str]) -> Interpreter:
        """Return the interpreter `python` or, if this machine does not have it, that of this process.

        `packages` are those that a training imports. If this process's interpreter is returned, the record names those
        of them that it lacks.
        """
        if shutil.which(python) is not None:
            return Interpreter(path=python)
        # A user may send any text, and a name with a dot would have its package imported here.
        names = (name for name in packages if name.isidentifier())
        return Interpreter(path=sys.executable, lacks=tuple(name for name in names if find_spec(name) is None))

    def lock(self, environment: Environment) -> Lock | None:
        """Return the stored lock (pinned versions of all packages) of an environment; None if there is none."""
        with suppress(OSError, ValueError):
            return Lock.model_validate_json((self.folder(environment) / "lock.json").read_bytes())
        return None

    def make_lock(self, environment: Environment, python: Path, after: float = AGAIN_S) -> Lock:
        """Return the lock of an environment; if there is none, make and store it, with the wheels that no index has.

        `python` is the interpreter whose environment was recorded. A lock that lacks packages which an index should
        have is made again if it is older than `after` seconds, as indexes change. Takes seconds. Raises NoEnvironment
        if no index can be reached, or if neither this installation nor that of `python` has the recorded version of
        Daylight; wheels that were installed from files are stored in any case.
        """
        with self._alone(environment):
            unkept = self._keep_files(environment)
            self._keep_ours(environment, python)
            lock = self.lock(environment)
            folder = self.folder(environment)
            if lock is None or self._stale(environment, lock, after):
                uv.pip_settings.cache_clear()  # pip's settings may have changed
                try:
                    lock = locks.make(environment, OWN if self._closed else python, folder, build=not self._closed)
                except NoEnvironment:
                    if lock is None:
                        raise
                    return lock
                files = {name: each for name, each in lock.files.items() if name not in unkept}
                lock = lock.model_copy(update={"files": files, "unlocked": {**lock.unlocked, **unkept}})
                _write(folder / "lock.txt", lock.text.encode())
                _write(folder / "lock.json", lock.model_dump_json(indent=1).encode())
        return lock

    def _stale(self, environment: Environment, lock: Lock, after: float) -> bool:
        lacking = lock.unlocked.keys() & locks.requirements(environment).wanted.keys()
        return bool(lacking) and time.time() - (self.folder(environment) / "lock.json").stat().st_mtime >= after

    def python(self, environment: Environment) -> Path | None:
        """Return the interpreter of a built environment; None if it is not completely built."""
        venv = self.folder(environment) / "venv"
        return venv / "bin" / "python" if whole(venv) else None

    def version(self, environment: Environment) -> str | None:
        """Return the Python version with which an environment was built; None if unknown."""
        with suppress(OSError):
            told = (self.folder(environment) / "venv" / "pyvenv.cfg").read_text()
            found = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", told, re.MULTILINE)
            return found[1] if found else None
        return None

    def build(self, environment: Environment, python: Path) -> Path:
        """Return the path of an environment's Python interpreter; build the environment if that has not been done.

        It is built from its lock, which pins the version and hash of each package. Without a lock, one is made first.
        `python` is the interpreter whose environment was recorded. Raises NoEnvironment if it cannot be built.
        """
        if found := self.python(environment):
            return found
        if self._closed:
            raise NoEnvironment(f"the locked environment is not built: {CLOSED}")
        lock = self.make_lock(environment, python, after=0.0)
        wheels = {name: self._wheel(digest) for name, digest in lock.files.items()}
        wheels["daylight"] = self._wheel(environment.daylight or "")
        gone = [name for name, wheel in wheels.items() if wheel is None]
        if gone:
            raise NoEnvironment(f"the wheels of {', '.join(gone)} are no longer kept, and cannot be made again")
        there = {name: wheel for name, wheel in wheels.items() if wheel is not None}
        return self.install(environment, lock, there, python)

    def install(
        self, environment: Environment, lock: Lock, wheels: Mapping[str, Path], python: Path, index: Path | None = None
    ) -> Path:
        """Return the path of an environment's Python interpreter; if it is not built, build it from this lock.

        Raises NoEnvironment if that fails. `wheels` are files by package; all others come from the indexes of
        `python`'s pip, or from the folder `index`.
        """
        with self._alone(environment):
            if self.python(environment) is None:  # another process may have built it meanwhile
                build(self.folder(environment) / "venv", environment, lock, wheels, python, index)
        return self.folder(environment) / "venv" / "bin" / "python"

    def present(self, python: Path) -> Environment:
        """Return a description of an interpreter's present environment; raise NoEnvironment if it cannot be run."""
        if self._closed:
            raise NoEnvironment(f"the packages of {python} are not compared: {CLOSED}")
        return present(python)

    def folder(self, environment: Environment) -> Path:
        """Return the path of an environment's folder, which may not exist."""
        return self._locks / environment.id

    def _wheel(self, digest: str) -> Path | None:
        return next(wheel_folder(self._home, digest).glob("*.whl"), None) if digest else None

    def _keep_ours(self, environment: Environment, python: Path) -> None:
        """Store the wheel of the version of Daylight with which the environment was recorded, if it is not stored.

        It is built from the files of this installation, or of the Daylight in `python`. Raises NoEnvironment if neither
        has that version.
        """
        if environment.daylight is None:
            raise NoEnvironment("this snapshot does not say which Daylight it ran with: it cannot be locked")
        if self._wheel(environment.daylight) is None:
            here = installed.own_root()
            same = here is not None and installed.digest_of(installed.own_files(here)) == environment.daylight
            runs = not self._closed and shutil.which(python) is not None
            root = here if same else own_root_of(python) if runs else None
            if root is None:
                raise NoEnvironment(f"Daylight is not installed in {python} here, and the service has another version")
            name, data = own_wheel(root, environment.daylight)
            self._keep(environment.daylight, name, data)

    def _keep_files(self, environment: Environment) -> dict[str, str]:
        """Store the wheels of those packages that were installed from files.

        Returns, by package, why a wheel could not be stored.
        """
        unkept = {}
        for name, expected in locks.requirements(environment).files.items():
            if self._wheel(expected) is None:
                file = Path(unquote(urlsplit(environment.urls[name]).path))
                try:
                    self._keep_file(expected, file)
                except (OSError, ValueError) as error:
                    said = getattr(error, "strerror", None) or error
                    unkept[name] = f"installed from {file}, which cannot be read now: {said}"
        return unkept

    def _keep_file(self, expected: str, file: Path) -> None:
        """Store a wheel from this file, whose name a user has sent; raises OSError, also if its digest is another."""
        folder = wheel_folder(self._home, expected)
        with opened(file) as source:
            if os.fstat(source.fileno()).st_size > LARGEST_WHEEL:
                raise OSError(errno.EFBIG, f"it has more than {LARGEST_WHEEL // 2**30} GiB")
            folder.mkdir(parents=True, exist_ok=True)
            seen = hashlib.sha256()
            with replacing(folder / file.name, mode=0o644, durable=False) as copy:
                while piece := source.read(PIECE):
                    seen.update(piece)
                    copy.write(piece)
                if seen.hexdigest() != expected:
                    raise OSError(errno.ESTALE, "it has other content now")

    def _keep(self, digest: str, name: str, data: bytes) -> None:
        folder = wheel_folder(self._home, digest)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / name, data)

    @contextmanager
    def _alone(self, environment: Environment) -> Iterator[None]:
        """Lock an environment's folder during the block, as several services may use it in a shared file system."""
        folder = self.folder(environment)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise NoEnvironment(f"the environment cannot be kept in {folder}: {error.strerror or error}") from None


def wheel_folder(home: Path, key: str) -> Path:
    """Return the folder of a wheel; `key` is the wheel's digest, or for Daylight itself that of its source files."""
    return home / "snapshots" / "wheels" / key


def _write(path: Path, data: bytes) -> None:
    with replacing(path, mode=0o644, durable=False) as file:
        file.write(data)
