"""Keep what this process does to itself: it sees all files, and changes none, reaches no network and no process.

All that is mounted becomes read-only, with overlays on top, whose changes are in memory and end with the process. This
is how a restart is rehearsed beside the training: the program's setup runs once more, and may remove its results.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path

from kernel_backend.parent_death import die_with
from kernel_backend.runner.past import namespace

_NETWORK, _PROCESSES, _IPC = 0x40000000, 0x20000000, 0x08000000
_KERNELS = ("/proc", "/sys", "/dev")
_SET_FLAGS, _UP = 0x8914, 0x1
_MEMORY = "size=1g"


def enter() -> None:
    """Go on in a forked process with namespaces of its own for mounts, networks, processes and shared memory.

    This process waits for the forked one, and ends as it does. Raises OSError if the kernel or a container forbids it.
    """
    namespace.enter(_NETWORK | _PROCESSES | _IPC)
    for _ in range(2):  # the first process of a namespace is its init, which signals do not end
        if child := os.fork():
            os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
        die_with(os.getppid())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:  # a program may talk to itself
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def shadow(scratch: Path) -> None:
    """Put an overlay on each folder of the root, and on each file system mounted in it; `scratch` has the changes.

    A file system on which there can be no overlay is read-only.
    """
    opened = {target: os.open(target, os.O_PATH) for target in _targets()}
    namespace.read_only("/")
    namespace.memory(scratch, _MEMORY)
    upper = os.open(scratch, os.O_PATH)  # its path is below an overlay soon
    for number, (target, fd) in enumerate(opened.items()):
        try:
            namespace.overlay([fd], Path(f"/proc/self/fd/{upper}", str(number)), target)
        except OSError:
            namespace.bind(fd, target)
        os.close(fd)
    with contextlib.suppress(OSError):
        namespace.memory(Path("/dev/shm"), _MEMORY)
    os.chdir(os.getcwd())


def _targets() -> list[str]:
    """Return the paths to cover, a folder before what is mounted in it."""
    folders = {each.path for each in os.scandir("/") if each.is_dir(follow_symlinks=False)}
    paths = folders | {*filter(os.path.lexists, namespace.mounts_below("/"))}
    return sorted(each for each in paths if not f"{each}/".startswith(tuple(f"{one}/" for one in _KERNELS)))
