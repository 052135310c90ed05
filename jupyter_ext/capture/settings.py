"""Convert magics to settings of a job: `%pip install` to a requirement, `%env` to an environment variable."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_ext.capture.cells import Cell, Magic, Parsed, magics_run
from kernel_backend.secret_scan import find_secrets, is_secret

# Advice for a variable that is left out.
KEPT_OUT = "stop Daylight's service, set it in a shell and start the service there (daylight serve): jobs inherit it"
_EXPANDED = re.compile(r"[{$]")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Settings:
    """Settings of a job that magics imply: requirements as `name==version`, and environment variables by name."""

    requirements: tuple[str, ...]
    environment: dict[str, str]
    warnings: tuple[str, ...]


def settings(cells: Iterable[tuple[Cell, Parsed]], variables: Mapping[str, str]) -> Settings:
    """Return the settings that the magics of all executed cells imply; later magics take precedence.

    `variables` is the notebook's environment, which has the values of `%env A={x}` and `%env A=$x`.
    """
    requirements: dict[str, None] = {}
    environment: dict[str, str] = {}
    warnings: list[str] = []
    for cell, parsed in cells:
        for magic in magics_run(cell, parsed):
            requirements |= dict.fromkeys(_requirements(magic))
            name, value = _variable(magic)
            if _EXPANDED.search(value):
                value = variables.get(name, value)
            if name and (is_secret(name, value) or find_secrets(value)):
                warnings.append(
                    f"{name}, set by %{magic.name} in cell [{cell.number}], looks like a secret and stays out of the "
                    f"snapshot: {KEPT_OUT}"
                )
            elif name:
                environment[name] = value
    return Settings(tuple(requirements), environment, tuple(warnings))


def _requirements(magic: Magic) -> list[str]:
    words = _words(magic.argument)
    if magic.name == "!" and words[:1] in (["pip"], ["pip3"]):
        words = words[1:]
    elif magic.name not in ("pip", "conda", "uv", "mamba"):
        return []
    words = words[1:] if words[:1] == ["pip"] else words
    if words[:1] != ["install"]:
        return []
    names = [found[0] for word in words[1:] if (found := _REQUIREMENT.match(word)) and "://" not in word]
    return [_installed(name) for name in names]


def _installed(name: str) -> str:
    try:
        return f"{name}=={importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return name


def _variable(magic: Magic) -> tuple[str, str]:
    if magic.name not in ("env", "set_env"):
        return "", ""
    name, _, value = magic.argument.replace("=", " ", 1).partition(" ")
    return (name.strip(), value.strip()) if value.strip() else ("", "")


def _words(text: str) -> Sequence[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
