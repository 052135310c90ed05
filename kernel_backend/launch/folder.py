"""Read and write the files of an attempt's folder that several processes share, atomically."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from kernel_backend import process_identity
from kernel_backend.durable import replacing
from kernel_backend.launch.gang_outcome import result_of
from kernel_backend.model.frames import Sources
from kernel_backend.model.launch.launch_spec import LaunchSpec, read_job, token_digest
from kernel_backend.model.launch.progress import BEGINNING, Tick, progress_file, read_tick, stacks_file
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, NodeEnd
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.trial import Failure
from kernel_backend.model.versions import read

R = TypeVar("R", bound=Record)

# The file is missing, or the user has replaced it by something else. Other errors are raised: if, for example, no
# file can be opened, a gang must not count as one without a launcher.
_NO_FILE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO})


class LauncherRecord(Record):
    """Identity of an attempt's launcher process: pid and start time, unique until the machine reboots."""

    pid: int
    started: float  # seconds after boot, which changes of the wall clock do not affect

    @classmethod
    def of(cls, pid: int) -> LauncherRecord:
        """Return the record of a living process."""
        return cls(pid=pid, started=process_identity.started(pid))

    def alive(self) -> bool:
        """Return True if this very process still runs (a zombie does not)."""
        return process_identity.alive(self.pid, self.started)


class AttemptFolder(NamedTuple):
    """Folder of an attempt, with accessors for its files; `node` is the number of the launcher's node in the gang.

    On a shared disk the launchers of all nodes have the same folder, and files of their own in it.
    """

    path: Path
    node: int = 0

    @property
    def spool(self) -> Path:
        """Return the path of rank 0's records, one JSON line each."""
        return self.path / "spool.jsonl"

    @property
    def launcher_log(self) -> Path:
        """Return the path of the launcher's log."""
        return self.path / "launcher.log"

    @property
    def node_log(self) -> Path:
        """Return the path of the log of this node's launcher, where each launcher has its own."""
        return self.path / self._own("launcher.log")

    def rank_log(self, rank: int) -> Path:
        """Return the path of a rank's log."""
        return self.path / f"rank-{rank}.log"

    def tick(self, rank: int) -> Tick | None:
        """Return a rank's newest progress tick; None if the disk was too full for its file."""
        try:
            return read_tick((self.path / progress_file(rank)).read_bytes())
        except FileNotFoundError:
            return BEGINNING

    def stacks(self, rank: int) -> str:
        """Return the stack traces that a rank wrote."""
        try:
            return (self.path / stacks_file(rank)).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def sources(self) -> Sources:
        """Return the folders of the user's code: the unpacked snapshot and the working folder."""
        job = self.job()
        code = Path(job.code)
        return Sources(code, Path(job.cwd), self._read(str(code / "snapshot.json"), Snapshot))

    def job(self) -> LaunchSpec:
        """Read the launch spec of the attempt."""
        return read_job((self.path / "job.json").read_bytes())

    def token(self) -> str:
        """Read the secret that authenticates this attempt's launcher to the service."""
        return (self.path / "token").read_text().strip()

    def token_digest(self) -> str:
        """Return the digest by which the store identifies this attempt; "" if its token is gone."""
        try:
            return token_digest(self.token())
        except OSError:
            return ""

    def launcher(self) -> LauncherRecord | None:
        """Return the record of the node's launcher; None if none has begun."""
        return self._read(self._own("launcher.json"), LauncherRecord)

    def result(self) -> AttemptResult | None:
        """Return the attempt's result; None while it runs, or if a launcher died first."""
        first = self._read("end.json", NodeEnd)
        if first is None:
            return self._read("outcome.json", AttemptResult)
        others = [self._read(AttemptFolder(self.path, node)._own("end.json"), NodeEnd) for node in _others(first)]
        return result_of([first, *(end for end in others if end is not None)]) if None not in others else None

    def refusal(self) -> AttemptResult | None:
        """Return why a launcher of any node has not started its ranks, so that none will start; None if none has."""
        refused = [end for end in self._ends() if end.refused is not None]
        return result_of(refused) if refused else None

    def partial_result(self) -> AttemptResult | None:
        """Return the result of a gang that has ended, of which launchers may have died; None if none has a record."""
        ends = self._ends()
        return result_of(ends) if ends else None

    def write_outcome(self, end: NodeEnd) -> None:
        """Write the result of a gang whose only launcher this is, as services of earlier versions read it."""
        self.write("outcome.json", json.dumps(result_of([end]).to_json()).encode())

    def write_end(self, end: NodeEnd) -> None:
        """Write how the ranks of this node ended; the result is made of the records of all nodes."""
        self.write(self._own("end.json"), json.dumps(end.to_json()).encode())

    def write_launcher(self, record: LauncherRecord) -> None:
        """Write the identity of this node's launcher."""
        self.write(self._own("launcher.json"), record.model_dump_json().encode())

    def write_pids(self, pids: Mapping[int, int]) -> None:
        """Write the process ids of this node's ranks, by rank."""
        self.write(self._own("ranks.json"), json.dumps(pids).encode())

    def failures(self) -> dict[int, Failure]:
        """Return the failure records of the ranks that wrote one, by rank."""
        found = (self._read(path.name, Failure) for path in self.path.glob("failure-*.json"))
        return {failure.rank: failure for failure in found if failure is not None}

    def prepare(self, job: LaunchSpec, token: str) -> None:
        """Write the launch spec and the attempt's token (mode 0600); idempotent."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)  # the folder may exist already, created for the unpacked code
        self.write("token", token.encode())
        self.write("job.json", job.model_dump_json(indent=2).encode())

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically by rename, readable only by its owner."""
        with replacing(self.path / name, mode=0o600, durable=False) as file:
            file.write(data)

    def lock(self) -> int | None:
        """Become the node's only launcher of this attempt; None if there was or is another.

        Returns a descriptor, which is to be kept open.
        """
        descriptor = os.open(self.path / self._own("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if self.launcher() is not None:
            os.close(descriptor)
            return None
        return descriptor

    def _ends(self) -> list[NodeEnd]:
        found = (self._read(path.name, NodeEnd) for path in self.path.glob("end*.json"))
        return sorted((end for end in found if end is not None), key=lambda end: end.node)

    def _own(self, name: str) -> str:
        """Return the name of this node's own file: node 0 has `end.json`, node 1 `end-node-1.json`."""
        stem, dot, kind = name.partition(".")
        return f"{stem}-node-{self.node}{dot}{kind}" if self.node else name

    def _read(self, name: str, kind: type[R]) -> R | None:
        try:
            return read(kind, (self.path / name).read_bytes())
        except ValidationError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise


def _others(first: NodeEnd) -> range:
    """Return the numbers of the nodes besides the first one whose records are needed for a result."""
    return range(1, len(first.names) if first.refused is None else 1)
