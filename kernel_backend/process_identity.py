"""Which process a pid once meant: pids are given out again, so the moment of its start is written down beside it."""

from __future__ import annotations

import psutil


def started(pid: int) -> float:
    """When this process began, in seconds after the machine's boot: a clock that is set does not change it.

    Raises psutil.NoSuchProcess.
    """
    # The kernel tells the boot in whole seconds, reckoned from a clock that is being corrected: between two looks it
    # may move by one. It must be the same on both sides of the look at the process, which is told from the epoch on.
    while True:
        boot = psutil.boot_time()
        since_boot = psutil.Process(pid).create_time() - boot
        if psutil.boot_time() == boot:
            return since_boot


def alive(pid: int, since: float) -> bool:
    """Whether the process that had this pid and this start still runs (a zombie does not)."""
    try:
        return abs(started(pid) - since) < 1 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
