"""Mount small file systems, which tests fill up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[str]:
    """Mount a file system of so many bytes at `folder`; return why that is impossible, "" on success."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield "mounting a small file system needs root" if os.geteuid() else f"mount: {done.stderr.strip()}"
        return
    try:
        yield ""
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a small file system at `folder`; without the right to do so, fail in CI, and skip the test elsewhere."""
    folder.mkdir()
    with mounted(folder, size) as reason:
        if reason:
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        yield folder
