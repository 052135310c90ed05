"""Read and write the files in an attempt's folder; writes are atomic, as several processes share the files."""

from __future__ import annotations

import contextlib
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
from kernel_backend.model.launch.progress import BEGINNING, Tick, detail_file, progress_file, read_tick, stacks_file
from kernel_backend.model.launch.times import Clocked, read_times, times_file
from kernel_backend.model.record import Record
from kernel_backend.model.reports import AttemptResult, Measurements, NodeEnd
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.trial import Failure
from kernel_backend.model.versions import read
from kernel_backend.tail import small_file

R = TypeVar("R", bound=Record)

# Errors of a file that is missing, or that the user has replaced. Other errors are raised: if, for example, the process
# has too many open files, a gang must not count as one without a launcher.
_NO_FILE = frozenset(
    {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO, errno.EFBIG}
)


class LauncherRecord(Record):
    """Launcher process of an attempt on one node, identified by pid and start time.

    These are unique until the machine reboots.
    """

    pid: int
    started: float  # seconds after boot, which changes of the wall clock do not affect

    @classmethod
    def of(cls, pid: int) -> LauncherRecord:
        """Return the record of the process with this pid, which must be running."""
        return cls(pid=pid, started=process_identity.started(pid))

    def alive(self) -> bool:
        """Return True if the process still runs (and is no zombie)."""
        return process_identity.alive(self.pid, self.started)


class AttemptFolder(NamedTuple):
    """Folder of an attempt, with functions that read and write its files.

    `node` is the number of this launcher's node in the gang (the group of all ranks). On a shared disk the launchers of
    all nodes use the same folder, with separate files in it.
    """

    path: Path
    node: int = 0

    @property
    def spool(self) -> Path:
        """Return the path of the spool file, to which rank 0 appends records, one line of JSON each."""
        return self.path / "spool.jsonl"

    @property
    def launcher_log(self) -> Path:
        """Return the path of the launcher's log."""
        return self.path / "launcher.log"

    @property
    def node_log(self) -> Path:
        """Return the path of the log of this node's launcher, for engines that give each launcher a log of its own."""
        return self.path / self._own("launcher.log")

    @property
    def end_file(self) -> str:
        """Return the name of the file in which this node's launcher records how the ranks on its node ended."""
        return self._own("end.json")

    def rank_log(self, rank: int) -> Path:
        """Return the path of a rank's log."""
        return self.path / f"rank-{rank}.log"

    def tick(self, rank: int) -> Tick | None:
        """Return a rank's newest heartbeat (step and phase), read from its progress file.

        Before the first heartbeat, return BEGINNING, which has step 0. None if the file is incomplete, as on a full
        disk.
        """
        try:
            return read_tick((self.path / progress_file(rank)).read_bytes())
        except FileNotFoundError:
            return BEGINNING

    def detail(self, rank: int) -> str:
        """Return what a rank says it is doing in a long phase; "" if it says nothing."""
        try:
            return (self.path / detail_file(rank)).read_text()[:300]
        except (OSError, ValueError):
            return ""

    def times(self, rank: int) -> Clocked | None:
        """Return how many seconds a rank has spent on each part of its steps; None if it has written no times yet.

        A rank begins to write them at its second step.
        """
        try:
            return read_times((self.path / times_file(rank)).read_bytes)
        except FileNotFoundError:
            return None

    def stacks(self, rank: int) -> str:
        """Return the stack traces that a rank has written; "" if it has written none."""
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
        """Return the launch spec of the attempt, read from the folder."""
        return read_job(small_file(self.path / "job.json"))

    def token(self) -> str:
        """Return the secret with which the attempt's launcher authenticates to the service, read from the folder."""
        return (self.path / "token").read_text().strip()

    def token_digest(self) -> str:
        """Return the digest of the attempt's secret token, as stored in the database; "" if the token file is gone."""
        try:
            return token_digest(self.token())
        except OSError:
            return ""

    def launcher(self) -> LauncherRecord | None:
        """Return the identity of this node's launcher; None if none has started."""
        return self._read(self._own("launcher.json"), LauncherRecord)

    def result(self) -> AttemptResult | None:
        """Return how the attempt ended, computed from the records of its launchers; None while one is missing.

        A record is missing as long as the ranks of its node run, and for good if its launcher died.
        """
        first = self._read("end.json", NodeEnd)
        if first is None:
            return self._read("outcome.json", AttemptResult)
        others = [self._read(AttemptFolder(self.path, node)._own("end.json"), NodeEnd) for node in _others(first)]
        return result_of([first, *(end for end in others if end is not None)]) if None not in others else None

    def refusal(self) -> AttemptResult | None:
        """Return how the attempt ended if a launcher has recorded that it did not start its ranks, else None."""
        refused = [end for end in self._ends() if end.refused is not None]
        return result_of(refused) if refused else None

    def partial_result(self) -> AttemptResult | None:
        """Return how the attempt ended according to those launchers that have written a record; None if none has."""
        ends = self._ends()
        return result_of(ends) if ends else None

    def measured(self) -> tuple[Measurements, ...]:
        """Return the final measurements that the launchers of all nodes have written: step times, and use of slots."""
        found = (self._read(path.name, Measurements) for path in self.path.glob("measured*.json"))
        return tuple(each for each in found if each is not None)

    def write_outcome(self, end: NodeEnd) -> None:
        """Write how an attempt with a single launcher ended, to a file that earlier versions of the service read."""
        self.write("outcome.json", json.dumps(result_of([end]).to_json()).encode())

    def write_end(self, end: NodeEnd) -> None:
        """Write how the ranks of this node ended; from such records of all nodes the attempt's result is computed."""
        self.write(self.end_file, json.dumps(end.to_json()).encode())

    def write_measured(self, measured: Measurements) -> None:
        """Write the final measurements of this node's ranks, those that were not delivered to the service before."""
        self.write(self._own("measured.json"), measured.model_dump_json().encode())

    def write_launcher(self, record: LauncherRecord) -> None:
        """Write the pid and start time of this node's launcher, by which other processes recognise it."""
        self.write(self._own("launcher.json"), record.model_dump_json().encode())

    def write_pids(self, pids: Mapping[int, int]) -> None:
        """Write the process IDs of this node's ranks, which are given by rank number."""
        self.write(self._own("ranks.json"), json.dumps(pids).encode())

    def write_wait(self, reason: str) -> None:
        """Write why this node's ranks cannot start yet, such as missing launchers; ignore it if the disk is full."""
        with contextlib.suppress(OSError):
            self.write(self._own("wait.txt"), reason.encode())

    def wait(self) -> str:
        """Return the newest reason why the ranks have not started yet; "" if they have, or no launcher wrote one."""
        if (self.path / "ranks.json").exists():
            return ""
        found = sorted(self.path.glob("wait*.txt"), key=lambda path: path.stat().st_mtime)
        return small_file(found[-1]).decode(errors="replace") if found else ""

    def failures(self) -> dict[int, Failure]:
        """Return the failure records that ranks have written, by rank number."""
        found = (self._read(path.name, Failure) for path in self.path.glob("failure-*.json"))
        return {failure.rank: failure for failure in found if failure is not None}

    def prepare(self, job: LaunchSpec, token: str) -> None:
        """Write the launch spec and the secret token to the folder, which is created if needed; may be repeated.

        Only the owner of the files can read them.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)  # the folder may exist already, created for the unpacked code
        self.write("token", token.encode())
        self.write("job.json", job.model_dump_json(indent=2).encode())

    def write(self, name: str, data: bytes) -> None:
        """Replace the file of this name atomically by one with this content; only its owner can read it."""
        with replacing(self.path / name, mode=0o600, durable=False) as file:
            file.write(data)

    def lock(self) -> int | None:
        """Take the lock that lets only one process ever be the attempt's launcher on this node.

        Returns a file descriptor, which holds the lock as long as it is open; None if there is or was another launcher.
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
        """Return the name that a file such as `end.json` has for this node, as the nodes share the folder.

        It is unchanged on node 0, and `end-node-1.json` on node 1.
        """
        stem, dot, kind = name.partition(".")
        return f"{stem}-node-{self.node}{dot}{kind}" if self.node else name

    def _read(self, name: str, kind: type[R]) -> R | None:
        try:
            return read(kind, small_file(self.path / name))
        except ValidationError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise


def _others(first: NodeEnd) -> range:
    """Return the numbers of the nodes, besides node 0, whose records are needed to compute the attempt's result.

    `first` is the record of node 0. If it refused to start its ranks, no other records are needed.
    """
    return range(1, len(first.names) if first.refused is None else 1)
