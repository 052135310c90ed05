"""Describe the environment of an interpreter on this machine other than this process's, even if it lacks Daylight."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kernel_backend.environments import bounded_process
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots import installed
from kernel_backend.snapshots.environment import machine, numerics_variables

_SECONDS = 60.0  # enough for a cold network file system


def present(python: Path, variables: Mapping[str, str] = os.environ) -> Environment:
    """Return a description of an interpreter's present environment, without git state; takes a tenth of a second.

    Of the environment variables `variables` it includes those that math libraries read. Raises NoEnvironment if the
    interpreter cannot be run.
    """
    told = _ask(python, installed.__file__)
    try:
        return Environment(**json.loads(told), **machine(), variables=numerics_variables(variables))
    except (ValueError, TypeError, RecursionError):
        raise _no_answer(python, told) from None


def own_root_of(python: Path) -> Path | None:
    """Return the folder from which another interpreter imports Daylight; None if it has no Daylight.

    Raises NoEnvironment if the interpreter cannot be run.
    """
    told = _ask(python, installed.__file__, "--own-root")
    try:
        root = json.loads(told)
        return Path(root) if root else None
    except (ValueError, TypeError, RecursionError):
        raise _no_answer(python, told) from None


def version_of(python: Path) -> str | None:
    """Return an interpreter's version, such as 3.11.7; None if it cannot be run."""
    try:
        return _ask(python, "-c", "import platform; print(platform.python_version())").strip()
    except NoEnvironment:
        return None


def _no_answer(python: Path, told: str) -> NoEnvironment:
    return NoEnvironment(f"the interpreter {python} does not say what it holds, but {ascii(told)[:100]}")


def _ask(python: Path, *arguments: str) -> str:
    try:
        done = bounded_process.run([python, "-P", *arguments], timeout=_SECONDS)
        done.check_returncode()
    except FileNotFoundError:
        raise NoEnvironment(f"the interpreter {python} is gone: make it again, or run with --env locked") from None
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise NoEnvironment(f"the interpreter {python} cannot be asked what it holds: {said[-1]}") from None
    return done.stdout
