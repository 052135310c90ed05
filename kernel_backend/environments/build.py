"""Build a Python environment from its lock in a temporary folder, which is then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.environments import uv
from kernel_backend.environments.lock import Lock
from kernel_backend.environments.present import version_of
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.archive import digest

_CONTENTS = "daylight.txt"  # file in a built environment that lists its distributions


def build(
    venv: Path,
    environment: Environment,
    lock: Lock,
    wheels: Mapping[str, Path],
    python: Path | None = None,
    index: Path | None = None,
) -> None:
    """Build the environment of a lock in folder `venv`, replacing an existing one.

    `wheels` are wheel files by package, including Daylight's own; others come from package indexes, or from the folder
    `index` alone. The interpreter is `python` if that has the right version, else one that uv finds. Raises
    NoEnvironment with uv's message (a full disk, no network), and leaves nothing half-built.
    """
    folder = venv.parent
    for left in folder.glob(".venv-*"):  # left by a killed build
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=".venv-"))
    try:
        base = interpreter(environment.python, python)
        new = aside / "bin" / "python"
        uv.run("venv", "--relocatable", "--python", base, str(aside), folder=folder, python=new)
        requirements = aside / "requirements.txt"
        requirements.write_text(lock.text + "".join(map(_line, wheels, wheels.values())))
        options = ["--python", str(new), "--require-hashes"]
        settled = python if python and python.exists() else new
        uv.run("pip", "sync", *options, str(requirements), folder=folder, python=settled, index=index)
        if lock.pinned:
            options = ["--python", str(new), "--no-deps", *lock.pinned.values()]
            uv.run("pip", "install", *options, folder=folder, python=settled)
        (aside / _CONTENTS).write_text("\n".join(_contents(aside)))
        if venv.exists():
            shutil.rmtree(venv)
        aside.rename(venv)
    except NoEnvironment as error:
        raise NoEnvironment(f"the locked environment cannot be built: {error.message}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def whole(venv: Path) -> bool:
    """Return True if an environment is complete: its interpreter and all packages that were installed exist."""
    try:
        there = (venv / _CONTENTS).read_text().splitlines()
        return os.access(venv / "bin" / "python", os.X_OK) and set(there) <= set(_contents(venv))
    except OSError:
        return False


def interpreter(version: str, python: Path | None) -> str:
    """Return the Python for a new environment of a version: the path `python` if its minor version is right.

    Otherwise return the minor version, such as `3.11`, for which uv searches an interpreter.
    """
    minor = version.rpartition(".")[0]
    if python is not None and (found := version_of(python)) and found.rpartition(".")[0] == minor:
        return str(python)
    return minor


def _contents(venv: Path) -> list[str]:
    return sorted(each.name for each in venv.glob("lib/python*/site-packages/*.dist-info"))


def _line(name: str, wheel: Path) -> str:
    """Return the line of a requirements file for a wheel; the URL includes the digest, as uv records it from there."""
    sha256 = digest(wheel.read_bytes())
    return f"{name} @ {wheel.as_uri()}#sha256={sha256} --hash=sha256:{sha256}\n"
