"""Write a rank's heartbeat, cheap enough for every step and readable even if this process is stuck."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import mmap
import os
import threading
from pathlib import Path

from kernel_backend.model.launch.progress import SHOW_STACKS, SIZE, Phase, Tick, progress_file, stacks_file, write_tick

_log = logging.getLogger(__name__)


class Progress:
    """Memory-mapped file for this rank's heartbeat, so that a tick needs no system call."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder  # of the attempt
        self._memory = memoryview(_shared(folder / progress_file(rank)))
        self._count = 0
        self.steps = 0  # number of steps that this process has begun
        self.step = 0  # the current or last step

    def tick(self, phase: Phase, step: int) -> None:
        """Write a heartbeat: the current phase, and the current or last step."""
        self._count += 1
        self.step = step
        self.steps += phase in ("first step", "step")
        write_tick(self._memory, Tick(self._count, phase, step))


def show_stacks_on_demand(folder: Path, rank: int) -> None:
    """Write stack traces of all threads to a file on a signal, even while native code holds the interpreter lock."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(folder / stacks_file(rank), flags, 0o600)
    with contextlib.suppress(OSError):  # a full disk is no reason to fail
        os.write(descriptor, f"main thread {threading.main_thread().ident:#x}\n".encode())
    faulthandler.register(SHOW_STACKS, file=descriptor, all_threads=True)


def _shared(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Writing to a page that does not fit on the disk would kill this process: allocate it first.
        os.posix_fallocate(descriptor, 0, SIZE)
        return mmap.mmap(descriptor, SIZE)
    except OSError as error:
        _log.warning("a hang of this rank would go unnoticed: %s", error)
        return mmap.mmap(-1, SIZE)
    finally:
        os.close(descriptor)
