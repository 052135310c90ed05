"""A file system of a few megabytes, to be filled."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[str]:
    """A file system of so many bytes at `folder`; gives why there is none, an empty text where there is one."""
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
    """The same for a test that has nothing to do without: a failure in CI, elsewhere a skip with its reason."""
    folder.mkdir()
    with mounted(folder, size) as reason:
        if reason:
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        yield folder
