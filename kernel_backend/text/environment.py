"""Format the Python environment of an experiment as text: its packages and its lock."""

from __future__ import annotations

from kernel_backend.errors import NoEnvironment
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.text import counted

_NOT_LOCKED = "not locked yet: that needs uv and a package index, and is tried at each submission (service.log)"
_FIRST = ("torch", "numpy", "horovod", "daylight")


def environment_lines(found: EnvironmentInfo) -> list[str]:
    """Return lines with Python, packages, machine, git commit, and the state of the lock."""
    known = found.recorded
    packages = known.distributions
    first = [f"{name} {packages[name]}" for name in _FIRST if name in packages]
    more = counted(len(packages) - len(first), "other package")
    driver = f", NVIDIA driver {known.driver}" if known.driver else ""
    lines = [
        f"environment {found.id[:12]}",
        f"  {known.implementation} {known.python} on {known.platform}",
        f"  {', '.join([*first, more])}",
        f"  {counted(known.cores, 'core')} of {known.cpu}{driver}",
    ]
    if known.conda:
        lines.append(f"  {counted(len(known.conda), 'conda package')}")
    if known.git_commit:
        lines.append(f"  git {known.git_commit[:12]}" + (", with changes" if known.git_dirty else ""))
    locked = f"{counted(found.locked, 'package')} locked by hash, and Daylight's own wheel"
    lines.append(f"  {locked if found.lock is not None else _NOT_LOCKED}")
    lines += [f"  not locked: {name}, {why}" for name, why in found.unlocked.items()]
    return [*lines, f"  built: {found.built}"] if found.built else lines


def lock_text(found: EnvironmentInfo, number: int) -> str:
    """Return the lock of an environment in pip's format of requirements with hashes.

    Raises NoEnvironment if there is no lock yet.
    """
    if found.lock is None:
        raise NoEnvironment(f"the environment of #{number} is {_NOT_LOCKED}")
    return found.lock
