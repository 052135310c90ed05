"""Record the Python environment in which code runs, without importing packages."""

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
    """Return a description of this interpreter, its packages and machine, and the git state of `folder`.

    By default the folder is the current one. It takes some tens of milliseconds. What only torch knows is left out, as
    importing it is slow: the ranks report it.
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
    """Return files to add to a snapshot: the sources of editable packages, and the git diff of `folder`.

    They are the user's text, so the caller must scan them for secrets; `ignored` returns True for files to leave out.
    """
    changes = git.diff(folder, ignored)
    return editable_files() | ({GIT_DIFF: changes.encode(errors="replace")} if changes else {})


def editable_files() -> dict[str, bytes]:
    """Return the sources of editable packages as files for a snapshot, `editable/<name>/...`.

    A job imports modules from these folders. Packages of more than 16 MiB are left out.
    """
    found: dict[str, bytes] = {}
    for name, root in editable_roots().items():
        files = sources(root)
        with contextlib.suppress(OSError):  # unreadable, or changed meanwhile
            if sum(path.stat().st_size for path in files.values()) <= MAX_BYTES:
                found |= {f"{EDITABLE}/{name}/{file}": path.read_bytes() for file, path in files.items()}
    return found


def numerics_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those environment variables that the math libraries read."""
    return {name: value for name, value in sorted(variables.items()) if _NUMERICS.fullmatch(name)}


def machine() -> dict[str, str | int | None]:
    """Return the fields of an `Environment` record that describe the machine."""
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
