"""Run the command uv with the package indexes that pip is configured to use."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kernel_backend.environments import bounded_process
from kernel_backend.errors import NoEnvironment

_SECONDS = 1800.0  # enough to download gigabytes over a slow connection
_FROM_PIP = {  # pip's settings by the names that uv uses; the user's own settings of uv take precedence
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


def find() -> str | None:
    """Return the path of uv's executable, from the package uv, else from PATH; None if it is not installed."""
    try:
        from uv import find_uv_bin  # imported here, since kernels do not need it

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


def run(*arguments: str, folder: Path, python: Path, stdin: str = "", index: Path | None = None) -> str:
    """Run the command `uv *arguments` in `folder` with the package indexes of `python`'s pip; return its output.

    `stdin` is its input. With `index`, packages come only from this folder, and the network is not used. Raises
    NoEnvironment if uv is missing, or with uv's message if it fails.
    """
    executable = find()
    if executable is None:
        raise NoEnvironment("there is no uv, which locks and builds environments: pip install uv")
    try:
        done = bounded_process.run(
            [executable, "--quiet", *arguments],
            cwd=folder,
            env=variables(pip_settings(str(python)), os.environ) | (only(index) if index is not None else {}),
            input=stdin,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(f"uv {' '.join(arguments[:2])} could not be run: {error}") from None
    if done.returncode:
        raise NoEnvironment(_said(done.stderr))
    return done.stdout


def variables(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for uv: those in `given`, and pip's `settings` that they do not override.

    Settings are passed as variables, since an index's URL may contain a password and command lines are public. pip does
    not prefer one index to another, so uv's strategy `unsafe-best-match` is set; hashes identify the files.
    """
    ours = {_FROM_PIP[name]: value for name, value in settings.items() if name in _FROM_PIP}
    if "UV_FIND_LINKS" in ours:
        ours["UV_FIND_LINKS"] = ",".join(ours["UV_FIND_LINKS"].split())
    defaults = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    outside = {name: value for name, value in given.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    return {**defaults, **ours, **outside}


def only(index: Path) -> dict[str, str]:
    """Return the environment variables that make uv install files from this folder only, without the network."""
    return {"UV_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_FIND_LINKS": str(index)}


def offline(said: str = "") -> bool:
    """Return True if uv must not use the network: if UV_OFFLINE is set, or if `said`, uv's error message, says so."""
    return os.environ.get("UV_OFFLINE", "0").lower() not in ("", "0", "false") or "network was disabled" in said


@cache
def pip_settings(python: str) -> dict[str, str]:
    """Return pip's settings for an interpreter by name; environment variables override files.

    Empty if pip is not installed.
    """
    for each in (python, sys.executable):
        command = [each, "-m", "pip", "config", "list"]
        try:
            done = bounded_process.run(command, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return parse_settings(done.stdout)
    return {}


def parse_settings(text: str) -> dict[str, str]:
    """Return the settings that `pip config list` prints, by name.

    The line `global.index-url='https://...'` becomes `{"index-url": "https://..."}`.
    """
    found: dict[int, dict[str, str]] = {0: {}, 1: {}, 2: {}}
    for section, name, value in re.findall(r"^(:env:|global|install)\.([\w-]+)=(.*)$", text, re.MULTILINE):
        try:
            found[("global", "install", ":env:").index(section)][name] = " ".join(str(ast.literal_eval(value)).split())
        except (ValueError, SyntaxError):
            continue
    return {**found[0], **found[1], **found[2]}


def find_links(python: Path) -> list[Path]:
    """Return the local folders in which the pip of an interpreter, and so uv, searches for wheels."""
    said = variables(pip_settings(str(python)), os.environ).get("UV_FIND_LINKS", "")
    return [folder for each in re.split(r"[,\s]+", said) if each and (folder := Path(each)).is_dir()]


def _said(stderr: str) -> str:
    """Return the error message within uv's output, as one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("warning:")]
    return re.sub(r"^error: ", "", "; ".join(lines)) or "uv failed and said nothing"
