"""Run as process 1 of a machine that namespaces simulate: mount its root file system, then reap processes.

Run by `unshare` in new namespaces as `machine_init.py FOLDER NAME SHARED VISIBLE...`. The root is this machine's own
below a layer in memory; SHARED is mounted at /shared, and the VISIBLE paths can be read.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    mount("--bind", source, target)


def make_root(folder: Path, shared: Path, visible: list[Path]) -> Path:
    """Mount the root file system, in which only the folder `shared` of this machine can be written."""
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "tmpfs", folder)
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for each in (upper, work, root):
        each.mkdir()
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", root)
    mount("-t", "proc", "proc", root / "proc")
    mount("--rbind", "/dev", root / "dev")
    mount("-t", "tmpfs", "tmpfs", root / "dev/shm")
    mount("-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
    for name in ("run", "tmp"):
        mount("-t", "tmpfs", "tmpfs", root / name)
    (root / "run").chmod(0o755)
    for path in visible:
        target = root / path.relative_to("/")
        bind(path, target)
        mount("-o", "remount,bind,ro", target)
    bind(shared, root / "shared")
    return root


def install(name: str) -> None:
    """Create the files of a fresh package installation: a munge key, and the machine's name in /etc/hosts."""
    key = Path("/etc/munge/munge.key")
    key.write_bytes(os.urandom(128))
    shutil.chown(key, "munge", "munge")
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    Path("/etc/resolv.conf").write_text("")


def main() -> None:
    folder, name, shared, *visible = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    root = make_root(Path(folder), Path(shared), [Path(each) for each in visible])
    socket.sethostname(name)
    old = root / "old_root"
    old.mkdir(exist_ok=True)
    subprocess.run(["pivot_root", root, old], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/old_root"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    install(name)
    Path("/run/ready").touch()
    while True:
        signal.sigwait([signal.SIGCHLD])
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


if __name__ == "__main__":
    main()
