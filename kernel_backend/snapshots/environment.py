"""Record the environment that code runs in, without importing any of it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kernel_backend.model.snapshot import EDITABLE, GIT_DIFF, Environment
from kernel_backend.snapshots import git
from kernel_backend.snapshots.installed import MAX_BYTES, editable_roots, installed, sources

_NUMERICS = re.compile(r"(OMP|MKL|ONEDNN|ATEN|CUBLAS|NCCL)_\w+")


def record(folder: Path | None = None, variables: Mapping[str, str] = os.environ) -> Environment:
    """Record this interpreter, its distributions and machine, and the git state of `folder` (default: the current one).

    Takes some tens of milliseconds. Torch's own facts are reported by the ranks, which import it anyway.
    """
    commit, dirty = git.commit(folder or Path.cwd())
    return Environment(
        **installed(),
        **machine(),
        variables=numerics_variables(variables),
        git_commit=commit,
        git_dirty=dirty,
    )


def beside(folder: Path, ignored: Callable[[Path], bool]) -> dict[str, bytes]:
    """Return extra members of a snapshot: sources of editable distributions, and the git diff.

    All of it is text of the user: the caller must scan it for secrets first, and pass `ignored` for files to leave out.
    """
    changes = git.diff(folder, ignored)
    return editable_files() | ({GIT_DIFF: changes.encode(errors="replace")} if changes else {})


def editable_files() -> dict[str, bytes]:
    """Return the sources of this interpreter's editable distributions as snapshot members: editable/<name>/...

    Modules below such a folder are imported from it. A distribution of more than 16 MiB does not travel.
    """
    found: dict[str, bytes] = {}
    for name, root in editable_roots().items():
        files = sources(root)
        with contextlib.suppress(OSError):  # a tree that may not be read, or changes just now
            if sum(path.stat().st_size for path in files.values()) <= MAX_BYTES:
                found |= {f"{EDITABLE}/{name}/{file}": path.read_bytes() for file, path in files.items()}
    return found


def numerics_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the math libraries read."""
    return {name: value for name, value in sorted(variables.items()) if _NUMERICS.fullmatch(name)}


def machine() -> dict[str, str | int | None]:
    """Return the fields of an Environment that are the same for any interpreter of this machine."""
    return {"cpu": cpu_name(), "cores": os.cpu_count() or 1, "driver": driver()}


def cpu_name() -> str:
    """Return the processor's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def driver() -> str | None:
    """Return the version of NVIDIA's kernel driver; None if there is none."""
    with contextlib.suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text().strip()
    return None
