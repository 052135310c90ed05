"""Give this process a mount namespace of its own, and mount overlays in it, without privileges (Linux 5.11 or newer).

Root takes a mount namespace alone. Another user takes a user namespace, too, in which its own user and group are the
only ones that have names: files of others keep their permissions, and programs such as `sudo` do not work there.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_BIND, _REC, _SLAVE = 0x1000, 0x4000, 0x80000
_DETACH = 2
_PR_SET_DUMPABLE = 4
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_PROBE_S = 5.0


def enter(more: int = 0) -> None:
    """Move this process, which must have a single thread, to a mount namespace of its own.

    `more` are flags of `unshare` for further namespaces. Raises OSError if the kernel or a container forbids it.
    """
    try:
        if os.geteuid():
            raise PermissionError
        _call("unshare", ctypes.c_int(_NEWNS | more))
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _call("unshare", ctypes.c_int(_NEWUSER | _NEWNS | more))
        # After setuid(), /proc/self belongs to root until the process is dumpable again.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", "", _SLAVE | _REC)  # what is mounted later outside is seen here, and nothing the other way


def overlay(lower: Sequence[int], upper: Path, target: str) -> None:
    """Mount an overlay at `target`: files of the folders `lower`, the first on top, with changes kept in `upper`.

    The folders are file descriptors, as the text of a path could hold a separator of the mount's options. `upper` gets
    the folders `upper` and `work`, if they do not exist.
    """
    for name in ("upper", "work"):
        (upper / name).mkdir(parents=True, exist_ok=True)
    fds = [os.open(upper / name, os.O_PATH) for name in ("upper", "work")]
    try:
        below = ":".join(f"/proc/self/fd/{each}" for each in lower)
        # Volatile: its end does not wait until the disk has what is dropped then.
        options = f"lowerdir={below},upperdir=/proc/self/fd/{fds[0]},workdir=/proc/self/fd/{fds[1]},userxattr,volatile"
        _mount("overlay", target, "overlay", 0, options)
    finally:
        for each in fds:
            os.close(each)


def memory(target: Path, options: str = "mode=0700") -> None:
    """Mount a file system in memory at the folder `target`."""
    _mount("tmpfs", str(target), "tmpfs", 0, options)


def read_only(target: str) -> None:
    """Make the mount at `target` read-only, with all that is mounted below it (Linux 5.12 or newer)."""
    flags = struct.pack("4Q", _ATTR_RDONLY, 0, 0, 0)
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, flags, ctypes.c_size_t(len(flags)))


def bind(source: int, target: str) -> None:
    """Mount the folder or file with the descriptor `source` at `target`, with all that is mounted below it."""
    _mount(f"/proc/self/fd/{source}", target, "", _BIND | _REC)


def detach(target: str) -> None:
    """Remove the mount at `target` from the tree; files that are open in it stay valid."""
    _call("umount2", os.fsencode(target), ctypes.c_int(_DETACH))


def mounts_below(folder: str) -> list[str]:
    """Return the paths at which other file systems are mounted within `folder`."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        path = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4])  # a space is \040
        if path.startswith(folder.rstrip("/") + "/"):
            found.append(path)
    return found


def why_not() -> str:
    """Return why processes of this user cannot have overlays of their own on this machine, "" if they can."""
    with tempfile.TemporaryDirectory() as folder:

        def attempt() -> None:
            enter()
            memory(Path(folder))
            lower = os.open("/usr", os.O_PATH)
            overlay([lower], Path(tempfile.mkdtemp(dir=folder)), tempfile.mkdtemp(dir=folder))

        return works(attempt)


def works(attempt: Callable[[], None]) -> str:
    """Return "" if `attempt` succeeds in a forked process, else the error that it raises there."""
    there, here = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, of which the child uses nothing
        child = os.fork()
    if child == 0:
        said = ""
        try:
            attempt()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(here, said.encode(errors="replace")[:1000])
        os._exit(bool(said))
    os.close(here)
    with os.fdopen(there, "rb") as pipe:
        return _ended(child) or pipe.read().decode(errors="replace")


def _ended(child: int) -> str:
    """Wait for the end of a forked process, and return "" if it has ended in time by itself, else what happened."""
    end = time.monotonic() + _PROBE_S
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return ""
        time.sleep(0.0005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return f"no answer within {_PROBE_S:g} s"


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    texts = (os.fsencode(each) or None for each in (source, target, kind))
    _call("mount", *texts, ctypes.c_ulong(flags), options.encode() or None)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
