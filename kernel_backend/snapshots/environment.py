"""What code runs with, recorded without being asked and without importing any of it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.model.snapshot import Environment

_NUMERICS = re.compile(r"(OMP|MKL|ONEDNN|ATEN|CUBLAS|NCCL)_\w+")
_GIT_SECONDS = 1.0  # a slow network file system must not hold up a submission


def record(folder: Path | None = None, variables: Mapping[str, str] = os.environ) -> Environment:
    """This interpreter, its distributions and machine, and the git state of `folder` (default: where we are).

    Takes some tens of milliseconds; torch's own facts are reported by the ranks, which import it anyway.
    """
    commit, dirty = _git(folder or Path.cwd())
    return Environment(
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        platform=platform.platform(),
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        distributions=_distributions(),
        variables={name: value for name, value in sorted(variables.items()) if _NUMERICS.fullmatch(name)},
        git_commit=commit,
        git_dirty=dirty,
    )


def _distributions() -> dict[str, str]:
    found: dict[str, str] = {}
    for each in importlib.metadata.distributions():
        name, version = _from_folder(each) or (each.metadata["Name"], each.version)
        if name:
            found.setdefault(
                re.sub(r"[-_.]+", "-", name).lower(), version
            )  # the first on sys.path is the one that is imported
    return dict(sorted(found.items()))


def _from_folder(distribution: importlib.metadata.Distribution) -> tuple[str, str] | None:
    """Name and version from `name-version.dist-info`, which saves reading each METADATA file."""
    path = getattr(distribution, "_path", None)
    name, dash, version = Path(str(path)).name.removesuffix(".dist-info").partition("-")
    return (name, version) if path is not None and dash and str(path).endswith(".dist-info") else None


def cpu_name() -> str:
    """The processor as its maker calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(folder: Path) -> tuple[str | None, bool | None]:
    """The commit and whether files differ from it; (None, None) outside of git, or where git takes too long."""
    if not any((each / ".git").exists() for each in [folder, *folder.parents]):
        return None, None
    try:
        answer = subprocess.run(
            ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    if answer.returncode != 0:
        return None, None
    commit = re.search(r"^# branch\.oid ([0-9a-f]+)$", answer.stdout, re.MULTILINE)
    dirty = any(not line.startswith("#") for line in answer.stdout.splitlines())
    return (commit[1] if commit else None), dirty
