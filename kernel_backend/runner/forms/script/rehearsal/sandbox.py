"""Isolate a rehearsal: give it a copy of the working folder, and prevent writes elsewhere and connections."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_LARGEST = 8 * 2**20  # bytes; larger files are linked, and so must not be written
_TOTAL = 64 * 2**20
_DEPTH = 3
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
_BEYOND = {
    "socket.connect": "connects to a network",
    "subprocess.Popen": "starts a program",
    "os.system": "runs a command",
}


def copy_folder(source: Path, target: Path) -> None:
    """Copy a working folder: small files are copied, large files and deep folders are linked symbolically."""
    left = _TOTAL

    def copy(there: Path, here: Path, depth: int) -> None:
        nonlocal left
        here.mkdir()
        for each in there.iterdir():
            size = each.stat().st_size if each.is_file() and not each.is_symlink() else 0
            if each.is_dir() and not each.is_symlink() and depth < _DEPTH:
                copy(each, here / each.name, depth + 1)
            elif each.is_file() and not each.is_symlink() and size <= min(_LARGEST, left):
                left -= size
                shutil.copy2(each, here / each.name)
            else:
                (here / each.name).symlink_to(each)

    copy(source, target, 0)


def confine(folder: Path, refuse: Callable[[str], None]) -> None:
    """Call `refuse` with a reason before this process writes outside `folder`, uses a network or runs a program."""
    root = str(folder.resolve()) + os.sep

    def inside(path: Any) -> bool:
        if isinstance(path, int):
            return True
        real = os.path.realpath(os.fsdecode(path))
        return real.startswith((root, "/dev/", "/proc/self/")) or real == root.rstrip(os.sep)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _BEYOND:
            refuse(f"it {_BEYOND[event]}")
        elif event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and int(flags or 0) & _WRITES and not inside(path):
                refuse(f"it writes {os.fsdecode(path)}")
        elif event in _CHANGES and not all(map(inside, arguments[: 2 if event in ("os.rename", "os.link") else 1])):
            refuse(f"it changes {os.fsdecode(arguments[0])}")

    sys.addaudithook(heard)
    save = torch.save

    def audited(value: Any, target: Any, *args: Any, **options: Any) -> None:
        if isinstance(target, str | os.PathLike):  # torch opens it in native code, which raises no audit event
            sys.audit("open", os.fspath(target), "w", os.O_WRONLY | os.O_CREAT)
        save(value, target, *args, **options)

    torch.save = audited  # type: ignore[assignment]
