"""Set kernel options of this process: to die with its parent, to adopt orphans, and to hide its memory from others."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent process, whose id is `parent`, dies.

    To the kernel the parent is the thread that started this process: the end of that thread is enough.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the option was set
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_descendants() -> None:
    """Make this process the new parent of any descendant whose own parent dies, in place of init (a subreaper)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_to_itself() -> None:
    """Hide environment and memory of this process from all but root, even from processes of the same user.

    Child processes are not affected.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
