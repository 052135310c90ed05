"""Run uv as a command, with the package indexes that pip uses."""

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

from kernel_backend.errors import NoEnvironment

_SECONDS = 1800.0  # gigabytes over a slow line
_FROM_PIP = {  # what uv reads in place of pip's settings; the user's own settings for uv take precedence
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


def find() -> str | None:
    """Return uv's executable: the one from its package, else the one on the PATH."""
    try:
        from uv import find_uv_bin  # not at the top: a kernel needs none

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


def run(*arguments: str, folder: Path, python: Path, stdin: str = "") -> str:
    """Return the output of a uv command run in `folder`, with the package indexes of `python`'s pip.

    Raises NoEnvironment with uv's own message if it fails, and if there is no uv.
    """
    executable = find()
    if executable is None:
        raise NoEnvironment("there is no uv, which locks and builds environments: pip install uv")
    try:
        done = subprocess.run(
            [executable, "--quiet", *arguments],
            cwd=folder,
            env=variables(pip_settings(str(python)), os.environ),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(f"uv {' '.join(arguments[:2])} could not be run: {error}") from None
    if done.returncode:
        raise NoEnvironment(_said(done.stderr))
    return done.stdout


def variables(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a uv process: the given variables, and pip settings that they do not override.

    Settings are passed as variables and not as options, since an index's URL may hold a password and command lines are
    public. pip does not prefer one index to another, so uv's strategy `unsafe-best-match` is set; hashes identify the
    file.
    """
    ours = {_FROM_PIP[name]: value for name, value in settings.items() if name in _FROM_PIP}
    if "UV_FIND_LINKS" in ours:
        ours["UV_FIND_LINKS"] = ",".join(ours["UV_FIND_LINKS"].split())
    defaults = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    outside = {name: value for name, value in given.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    return {**defaults, **ours, **outside}


def offline(said: str = "") -> bool:
    """Return True if the environment forbids uv the network, or uv's own message says so."""
    return os.environ.get("UV_OFFLINE", "0").lower() not in ("", "0", "false") or "network was disabled" in said


@cache
def pip_settings(python: str) -> dict[str, str]:
    """Return pip's settings for an interpreter by name; variables override files. Empty without pip."""
    for each in (python, sys.executable):
        command = [each, "-m", "pip", "config", "list"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return parse_settings(done.stdout)
    return {}


def parse_settings(text: str) -> dict[str, str]:
    """Parse `pip config list`: `global.index-url='https://...'` becomes `{"index-url": "https://..."}`."""
    found: dict[int, dict[str, str]] = {0: {}, 1: {}, 2: {}}
    for section, name, value in re.findall(r"^(:env:|global|install)\.([\w-]+)=(.*)$", text, re.MULTILINE):
        try:
            found[("global", "install", ":env:").index(section)][name] = " ".join(str(ast.literal_eval(value)).split())
        except (ValueError, SyntaxError):
            continue
    return {**found[0], **found[1], **found[2]}


def find_links(python: Path) -> list[Path]:
    """Return the local folders in which pip and uv look for wheels."""
    said = variables(pip_settings(str(python)), os.environ).get("UV_FIND_LINKS", "")
    return [folder for each in re.split(r"[,\s]+", said) if each and (folder := Path(each)).is_dir()]


def _said(stderr: str) -> str:
    """Return uv's error message on one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("warning:")]
    return re.sub(r"^error: ", "", "; ".join(lines)) or "uv failed and said nothing"
