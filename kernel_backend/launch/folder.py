"""The files of an attempt's folder that more than one process touches, written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from kernel_backend import process_identity
from kernel_backend.durable import replacing
from kernel_backend.model.frames import Sources
from kernel_backend.model.launch.launch_spec import LaunchSpec, read_job, token_digest
from kernel_backend.model.launch.progress import BEGINNING, Tick, progress_file, read_tick, stacks_file
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.trial import Failure
from kernel_backend.model.versions import read

R = TypeVar("R", bound=Record)

# There is no file, or the user has put something else there. Any other error passes: of a machine that is short of
# open files, say, and a gang must not be taken for one without a launcher.
_NO_FILE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO})


class LauncherRecord(Record):
    """Which process launches this attempt; pid and start time together name it until the machine starts anew."""

    pid: int
    started: float  # seconds after the machine's boot: a wall clock that is set does not change it

    @classmethod
    def of(cls, pid: int) -> LauncherRecord:
        """The record of a living process."""
        return cls(pid=pid, started=process_identity.started(pid))

    def alive(self) -> bool:
        """Whether that very process runs (a zombie does not)."""
        return process_identity.alive(self.pid, self.started)


class AttemptFolder(NamedTuple):
    """An attempt's folder, by the names of its files."""

    path: Path

    @property
    def spool(self) -> Path:
        """What rank 0 says, a JSON line a record."""
        return self.path / "spool.jsonl"

    @property
    def launcher_log(self) -> Path:
        """The launcher's own output."""
        return self.path / "launcher.log"

    def rank_log(self, rank: int) -> Path:
        """What a rank printed."""
        return self.path / f"rank-{rank}.log"

    def tick(self, rank: int) -> Tick | None:
        """A rank's newest sign of life; None where it had no room to leave any."""
        try:
            return read_tick((self.path / progress_file(rank)).read_bytes())
        except FileNotFoundError:
            return BEGINNING

    def stacks(self, rank: int) -> str:
        """What a rank wrote of its stacks."""
        try:
            return (self.path / stacks_file(rank)).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def sources(self) -> Sources:
        """Where the user's code lies."""
        job = self.job()
        code = Path(job.code)
        return Sources(code, Path(job.cwd), self._read(str(code / "snapshot.json"), Snapshot))

    def job(self) -> LaunchSpec:
        """The attempt, spelled out."""
        return read_job((self.path / "job.json").read_bytes())

    def token(self) -> str:
        """The secret by which this attempt's launcher speaks to the service."""
        return (self.path / "token").read_text().strip()

    def token_digest(self) -> str:
        """Return what the store knows this attempt by; "" where its token is gone."""
        try:
            return token_digest(self.token())
        except OSError:
            return ""

    def launcher(self) -> LauncherRecord | None:
        """Who launches it; None before a launcher has begun."""
        return self._read("launcher.json", LauncherRecord)

    def result(self) -> AttemptResult | None:
        """How it ended; None while it runs, or when its launcher died first."""
        return self._read("outcome.json", AttemptResult)

    def failures(self) -> dict[int, Failure]:
        """What its ranks wrote about their own ends."""
        found = (self._read(path.name, Failure) for path in self.path.glob("failure-*.json"))
        return {failure.rank: failure for failure in found if failure is not None}

    def prepare(self, job: LaunchSpec, token: str) -> None:
        """Write the job and its token (0600); doing it twice changes nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)  # it may have been made a moment ago, for the unpacked code
        self.write("token", token.encode())
        self.write("job.json", job.model_dump_json(indent=2).encode())

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place by rename, readable by its owner alone."""
        with replacing(self.path / name, mode=0o600, durable=False) as file:
            file.write(data)

    def lock(self) -> int | None:
        """Become this attempt's one launcher: a descriptor to keep open, or None where another is or was."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if self.launcher() is not None:
            os.close(descriptor)
            return None
        return descriptor

    def _read(self, name: str, kind: type[R]) -> R | None:
        try:
            return read(kind, (self.path / name).read_bytes())
        except ValidationError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
