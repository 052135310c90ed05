"""Identify a process by pid and start time, because pids are reused."""

from __future__ import annotations

import psutil


def started(pid: int) -> float:
    """Return a process's start time in seconds after boot, which changes of the clock do not affect.

    Raises psutil.NoSuchProcess.
    """
    # The kernel reports the boot time in whole seconds, from a clock under correction, so that it may change by one
    # between two reads. It must be equal before and after reading the process's start time, which depends on it.
    while True:
        boot = psutil.boot_time()
        since_boot = psutil.Process(pid).create_time() - boot
        if psutil.boot_time() == boot:
            return since_boot


def alive(pid: int, since: float) -> bool:
    """Return True if the process `pid` that started at `since` (see `started`) still runs, and is no zombie."""
    try:
        return abs(started(pid) - since) < 1 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
