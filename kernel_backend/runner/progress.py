"""Write a rank's heartbeat to a file: cheaply enough for every step, and readable even if this process hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

from kernel_backend.durable import replacing
from kernel_backend.model.launch import times
from kernel_backend.model.launch.progress import (
    SHOW_STACKS,
    SIZE,
    Phase,
    Tick,
    detail_file,
    progress_file,
    stacks_file,
    write_tick,
)
from kernel_backend.runner.forked_children import plain_signal
from kernel_backend.runner.timing.clock import CLOCK

_log = logging.getLogger(__name__)


class Progress:
    """Memory-mapped heartbeat file of this rank, which is written without a system call."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder  # of the attempt
        self.rank = rank
        self._memory = memoryview(_shared(folder / progress_file(rank), SIZE, "a hang of this rank would go unnoticed"))
        self._count = 0
        self._phase: Phase = "starting"
        self.steps = 0  # number of steps that this process has begun
        self.step = 0  # the current or last step
        self.listener: Callable[[Phase, int], None] | None = None  # called with each heartbeat

    def tick(self, phase: Phase, step: int) -> None:
        """Write a heartbeat: `phase` is the kind of work that the rank does now, `step` the current or last step."""
        self._count += 1
        self.step, self._phase = step, phase
        self.steps += phase in ("first step", "step")
        write_tick(self._memory, Tick(self._count, phase, step))
        CLOCK.phase(phase, step)
        if self.listener is not None:
            self.listener(phase, step)

    def alive(self) -> None:
        """Write a heartbeat from another thread: the work of now goes on, although it takes long."""
        self._count += 1
        write_tick(self._memory, Tick(self._count, self._phase, self.step))

    def tell(self, text: str) -> None:
        """Tell users what a long phase is doing, or "" if it is over; the text replaces the one before."""
        with contextlib.suppress(OSError), replacing(self.folder / detail_file(self.rank), durable=False) as file:
            file.write(text.encode())

    def times(self) -> memoryview:
        """Create the file that sums the seconds of each part of this rank's work, and return its mapped memory."""
        path = self.folder / times.times_file(self.rank)
        return memoryview(_shared(path, times.SIZE, "where the time of this rank goes is not shown"))


def show_stacks_on_demand(folder: Path, rank: int) -> None:
    """Install a signal handler that writes the stacks of all threads to a file, to diagnose a hang.

    The launcher sends the signal. The handler works even while native code holds the interpreter lock.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(folder / stacks_file(rank), flags, 0o600)
    with contextlib.suppress(OSError):  # a full disk is no reason to fail
        os.write(descriptor, f"main thread {threading.main_thread().ident:#x}\n".encode())
    faulthandler.register(SHOW_STACKS, file=descriptor, all_threads=True)
    plain_signal(SHOW_STACKS, lambda: faulthandler.unregister(SHOW_STACKS))


def _shared(path: Path, size: int, otherwise: str) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Writing to a page that does not fit on the disk would kill this process: allocate it first.
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except OSError as error:
        _log.warning("%s: %s", otherwise, error)
        return mmap.mmap(-1, size)
    finally:
        os.close(descriptor)
