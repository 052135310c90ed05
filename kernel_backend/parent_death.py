"""What a process asks of the kernel for itself: to end with the one that it works for, to be looked into by nobody."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` dies, which has started it.

    More exactly: when the thread dies that has started it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)


def keep_to_itself() -> None:
    """Have the kernel show environment and memory of this process to root alone, and to no other process of its user.

    What it starts is as open as ever.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
