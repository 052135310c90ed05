"""The two ends of a worker's talk: the spool that rank 0 appends to, and the instructions that come down by stdin."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

from kernel_backend.model.reports import ArtifactSaved, Committed, Fact, Note, Report, Started

Said = Started | Report | Committed | Note | Fact | ArtifactSaved


LOOK_S = 0.01


class Instructions:
    """What the launcher wants of this rank. `release` becomes true once and stays: commit a checkpoint and leave.

    `until` is the furthest unit up to whose end it shall train; 0 before any was named.
    """

    def __init__(self) -> None:
        self.release = False
        self.until = 0

    def beyond(self, units: int, seconds: float) -> int | None:
        """A unit further than this to train to, waiting so long for one; None where none comes, or for `release`."""
        # No lock and no event to wait for: a signal's handler may run at any moment of this thread.
        deadline = time.monotonic() + seconds
        while not self.release and self.until <= units and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self.until if self.until > units and not self.release else None

    def listen(self, descriptor: int = 0) -> None:
        """Read lines of `descriptor` in a thread, and take SIGTERM for `release`. Call from the main thread.

        The end of the file means that the launcher is dead: this process then kills itself, for a rank without
        a launcher would hold its slot unseen.
        """
        signal.signal(signal.SIGTERM, self._asked)
        threading.Thread(target=self._read, args=(descriptor,), name="instructions", daemon=True).start()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.release = True

    def _read(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            rest = b""
            while chunk := os.read(descriptor, 4096):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._hear(line.decode(errors="replace").split())
        os.kill(os.getpid(), signal.SIGKILL)

    def _hear(self, words: list[str]) -> None:
        match words:
            case ["release" | "stop"]:
                self.release = True
            case ["until", unit] if unit.isdigit():
                self.until = max(self.until, int(unit))


class Spool:
    """Numbered records of rank 0, a JSON line each; other ranks say nothing.

    What finds the disk full waits in memory and is written with the next record: training goes on, whatever becomes
    of this file.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._number = 0
        self._waiting = b""
        self._turn = threading.Lock()  # checkpoints are told of by the thread that writes them
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600) if rank == 0 else None

    @property
    def speaks(self) -> bool:
        """Whether this is rank 0's."""
        return self._file is not None

    def say(self, record: Said) -> None:
        """Append one record, with its number and the time."""
        if self._file is None:
            return
        with self._turn:
            self._number += 1
            numbered = record.model_copy(update={"number": self._number, "at": time.time()})
            self._waiting += numbered.model_dump_json().encode() + b"\n"
            self._append(self._file)

    def _append(self, file: int) -> None:
        with contextlib.suppress(OSError):
            written = os.write(file, self._waiting)
            self._waiting = self._waiting[written:]  # of a line that is torn by a full disk the rest comes later
