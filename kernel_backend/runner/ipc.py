"""Exchange messages with the launcher: rank 0 appends records to the spool file; ranks read instructions from stdin."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from kernel_backend.model.launch.trace import Trace, instructed
from kernel_backend.model.reports import ArtifactSaved, Committed, Fact, Guarantee, Note, Report, Started, Traced
from kernel_backend.runner.forked_children import plain_signal
from kernel_backend.runner.metrics.loss_spikes import LossSpikes

Said = Started | Report | Committed | Note | Fact | Guarantee | ArtifactSaved | Traced


LOOK_S = 0.01


class Instructions:
    """Instructions that this rank has received from the launcher.

    `release` becomes True when the rank must commit a checkpoint and exit, and stays True. `until` is the step or epoch
    up to which the rank may train, 0 if none was set. `trace` is the newest request to record steps with the profiler,
    None before the first.
    """

    def __init__(self) -> None:
        self.release = False
        self.until = 0
        self.trace: Trace | None = None

    def beyond(self, units: int, seconds: float) -> int | None:
        """Wait up to `seconds` for an instruction to train further than `units`, a number of steps or epochs.

        Return the new target; None if none arrived in time or the rank must exit (`release`).
        """
        # No lock or event, as a signal handler may interrupt this thread anywhere.
        deadline = time.monotonic() + seconds
        while not self.release and self.until <= units and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self.until if self.until > units and not self.release else None

    def listen(self, descriptor: int = 0) -> None:
        """Read instructions from file descriptor `descriptor` (stdin) in a thread, and treat SIGTERM as `release`.

        Call it in the main thread. When the input ends, the launcher is dead. This process then kills itself, as it
        would otherwise hold its slot unnoticed. The user's code and its processes find an empty stdin, from which
        `input()` raises EOFError. Processes that the user's code forks end by SIGTERM, as in plain Python.
        """
        signal.signal(signal.SIGTERM, self._asked)
        plain_signal(signal.SIGTERM, self._not_asked)
        own = os.dup(descriptor)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), descriptor)
        sys.stdin = NoInput(io.BufferedReader(io.FileIO(descriptor, closefd=False)))
        threading.Thread(target=self._read, args=(own,), name="instructions", daemon=True).start()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.release = True

    def _not_asked(self) -> None:
        """Remove the handler in a process that the user's code has forked, unless that code has set one of its own."""
        if signal.getsignal(signal.SIGTERM) == self._asked:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

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
            case ["trace", *_]:
                self.trace = instructed(words) or self.trace


class NoInput(io.TextIOWrapper):
    """Empty stdin; reading a line raises EOFError with an explanation."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Raise EOFError: `input()` calls this."""
        raise EOFError("nobody answers input() in a job: give the value as a hyperparameter or an argument")

    def __next__(self) -> str:  # type: ignore[override]
        """Raise StopIteration, so that a loop over stdin ends.

        The inherited method would call `readline`, which raises.
        """
        raise StopIteration


class Spool:
    """Writer of the spool, the file of numbered JSON lines that the launcher reads; ranks other than 0 write nothing.

    If the disk is full, records wait in memory and are written with the next one. Write errors never stop the training.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._number = 0
        self._waiting = b""
        self._spikes = LossSpikes()
        self._lock = threading.Lock()  # checkpoints are recorded by the thread that writes them
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600) if rank == 0 else None

    @property
    def speaks(self) -> bool:
        """Return True on rank 0, the only rank that writes records."""
        return self._file is not None

    def say(self, record: Said) -> None:
        """Append a record to the spool file, with its number and the time.

        If the record is a report by which a loss has jumped and stayed high, append a warning to the user as well.
        """
        self._write(record)
        if not (isinstance(record, Report) and record.kind == "training"):
            return
        if text := self._spikes.take(record.step, record.metrics):
            self._write(Note(level="warning", text=text))

    def begin_losses(self, step: int) -> None:
        """Compare losses of later steps with one another only: another training has begun."""
        self._spikes.begin(step)

    def _write(self, record: Said) -> None:
        if self._file is None:
            return
        with self._lock:
            self._number += 1
            numbered = record.model_copy(update={"number": self._number, "at": time.time()})
            self._waiting += numbered.model_dump_json().encode() + b"\n"
            self._append(self._file)

    def _append(self, file: int) -> None:
        with contextlib.suppress(OSError):
            written = os.write(file, self._waiting)
            self._waiting = self._waiting[written:]  # after a partial write on a full disk, the rest is written later
