"""Identify a process by pid and start time, as pids are reused."""

from __future__ import annotations

import psutil


def started(pid: int) -> float:
    """Return the process's start time in seconds after boot, which setting the clock does not change.

    Raises psutil.NoSuchProcess.
    """
    # The kernel reports the boot in whole seconds, computed from a clock under correction: between two reads it
    # may move by one. It must be equal before and after reading the process's start, which counts from the epoch.
    while True:
        boot = psutil.boot_time()
        since_boot = psutil.Process(pid).create_time() - boot
        if psutil.boot_time() == boot:
            return since_boot


def alive(pid: int, since: float) -> bool:
    """Return True if the process with this pid and start time still runs (a zombie does not)."""
    try:
        return abs(started(pid) - since) < 1 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
